"""Scores of translations by sacreBLEU, each with its signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ablate.config.metrics import BREVITY_PENALTY, TRANSLATION_METRICS
from ablate.metrics import resampling
from ablate.store.records import Measurement


def measure_translations(
    name: str, hypotheses: Sequence[str], references: Sequence[str]
) -> Measurement:
    """Score detokenized text against one reference for each sentence, with sacreBLEU's defaults.

    Returns:
        The corpus score (0 to 100; TER may exceed that), its signature, and scores on resampled
        test sets; of BLEU also the brevity penalty.
    """
    metric = _metric(name)
    # sacrebleu.significance uses the same two functions. Its public functions return p-values only,
    # and compare single systems, not means over seeds.
    of_items = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    statistics, score_of = np.array(of_items, np.float64), metric._compute_score_from_stats
    metric.num_refs = 1  # part of the signature; the functions above do not set it
    signature = str(metric.get_signature())
    measured = resampling.measure(statistics, lambda sums: score_of(sums).score, signature)
    if name != "bleu":
        return measured
    penalty = float(score_of(statistics.sum(0)).bp)
    return measured.model_copy(update={"parts": {BREVITY_PENALTY.name: penalty}})


def sentence_scores(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Score each sentence alone; BLEU by the n-gram orders that the sentence is long enough for."""
    metric, scores = _metric(name, effective_order=True), []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        scores.append(float(metric.sentence_score(hypothesis, [reference]).score))
    return scores


def _metric(name: str, effective_order: bool = False) -> Any:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    makers: dict[str, Any] = {
        # force: no warning about text that seems tokenized
        "bleu": lambda: BLEU(force=True, effective_order=effective_order),
        "chrf": CHRF,
        "chrf++": lambda: CHRF(word_order=2),
        "ter": TER,
    }
    assert makers.keys() == {metric.name for metric in TRANSLATION_METRICS}
    return makers[name]()
