"""Scores of translations through sacreBLEU, each with its signature, and on resampled test sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.config.metrics import ON_TRANSLATIONS
from ablate.stats.bootstrap import RESAMPLES, RESAMPLING_SEED

_BLOCK = 1 << 22  # drawn indices held at once


@dataclass(frozen=True)
class Score:
    """A corpus score (0 to 100; TER may be more) and the signature that says how it was computed."""

    value: float
    signature: str


@dataclass(frozen=True)
class Measured(Score):
    """A score, and the scores on the resampled test sets."""

    resamples: list[float]


def score(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus score of detokenized text against one reference a sentence, with sacreBLEU's defaults.

    Args:
        name: a metric, as a study writes it.
        hypotheses: translations, a sentence each.
        references: as many.
    """
    metric = _metric(name)
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(float(value), str(metric.get_signature()))


def measure(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> Measured:
    """The corpus score, and those on test sets of sentences drawn from this one, as sacreBLEU draws them.

    Two systems on the same references meet the same resampled test sets.
    """
    metric = _metric(name)
    # What sacrebleu.significance itself calls: it gives p values alone, and compares single systems, not means.
    statistics = np.array(metric._extract_corpus_statistics(list(hypotheses), [list(references)]), dtype=np.float64)
    metric.num_refs = 1
    value = metric._compute_score_from_stats(statistics.sum(0)).score
    resamples = [float(metric._compute_score_from_stats(sums).score) for sums in _resampled(statistics)]
    return Measured(float(value), str(metric.get_signature()), resamples)


def sentence_scores(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """The score of each sentence alone; BLEU of those n-gram orders that the sentence is long enough for."""
    metric = _metric(name, effective_order=True) if name == "bleu" else _metric(name)
    pairs = zip(hypotheses, references, strict=True)
    return [float(metric.sentence_score(hypothesis, [reference]).score) for hypothesis, reference in pairs]


def _resampled(statistics: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    """The sums of sentence statistics over every resampled test set."""
    draw = np.random.default_rng(RESAMPLING_SEED)
    count = len(statistics)
    rows = max(1, _BLOCK // count)
    for first in range(0, RESAMPLES, rows):
        drawn = draw.choice(count, size=(min(rows, RESAMPLES - first), count), replace=True)
        for indices in drawn:
            yield np.bincount(indices, minlength=count) @ statistics


def _metric(name: str, **options: Any) -> Any:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    makers: dict[str, Any] = {
        "bleu": lambda: BLEU(force=True, **options),  # force: no remark on text that looks tokenized
        "chrf": CHRF,
        "chrf++": lambda: CHRF(word_order=2),
        "ter": TER,
    }
    assert makers.keys() == ON_TRANSLATIONS.keys()
    return makers[name]()
