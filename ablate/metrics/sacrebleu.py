"""Scores of translations by sacreBLEU, each with its signature, and on resampled test sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.config.metrics import TRANSLATION_METRICS
from ablate.stats.bootstrap import RESAMPLES, RESAMPLING_SEED
from ablate.store.records import Measurement

RESAMPLE_DIGITS = 6
_BLOCK = 1 << 22  # indices drawn at once


def measure(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> Measurement:
    """Score detokenized text against one reference for each sentence, with sacreBLEU's defaults.

    The resampled test sets are drawn as sacreBLEU's paired bootstrap draws them, so that two systems with the same
    references are scored on the same ones.

    Args:
        name: of the metric, as a study writes it.
        hypotheses: translations.
        references: as many.

    Returns:
        The corpus score (0 to 100; TER may exceed that), its signature, and a score for each resampled test set.
    """
    metric = _metric(name)
    # sacrebleu.significance uses the same two functions. Its public functions return p-values only, and compare single
    # systems, not means over seeds.
    statistics = np.array(metric._extract_corpus_statistics(list(hypotheses), [list(references)]), dtype=np.float64)
    metric.num_refs = 1  # part of the signature; the functions above do not set it
    value = metric._compute_score_from_stats(statistics.sum(0)).score
    resamples = (float(metric._compute_score_from_stats(sums).score) for sums in _resampled(statistics))
    return Measurement(
        value=float(value),
        signature=str(metric.get_signature()),
        resamples=tuple(round(score, RESAMPLE_DIGITS) for score in resamples),
    )


def sentence_scores(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Score each sentence alone. BLEU uses only the n-gram orders that the sentence is long enough for."""
    metric = _metric(name, effective_order=True) if name == "bleu" else _metric(name)
    pairs = zip(hypotheses, references, strict=True)
    return [float(metric.sentence_score(hypothesis, [reference]).score) for hypothesis, reference in pairs]


def _resampled(statistics: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The summed sentence statistics (n_statistics,) of each resampled test set."""
    generator = np.random.default_rng(RESAMPLING_SEED)
    count = len(statistics)
    rows = max(1, _BLOCK // count)
    for first in range(0, RESAMPLES, rows):
        drawn = generator.choice(count, size=(min(rows, RESAMPLES - first), count), replace=True)
        for indices in drawn:
            yield np.bincount(indices, minlength=count) @ statistics


def _metric(name: str, **options: Any) -> Any:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    makers: dict[str, Any] = {
        "bleu": lambda: BLEU(force=True, **options),  # force: no warning about text that looks tokenized
        "chrf": CHRF,
        "chrf++": lambda: CHRF(word_order=2),
        "ter": TER,
    }
    assert makers.keys() == {metric.name for metric in TRANSLATION_METRICS}
    return makers[name]()
