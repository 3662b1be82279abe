"""Scores on resampled test sets, for metrics that are functions of summed statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.stats.bootstrap import RESAMPLES, RESAMPLING_SEED
from ablate.store.records import Measurement

RESAMPLE_DIGITS = 6
_BLOCK = 1 << 22  # indices drawn at once


class Statistics(NamedTuple):
    """What a score of a test set follows from; the arguments of `measure`."""

    values: NDArray[np.float64]
    score: Callable[[NDArray[np.float64]], float]
    signature: str


def measure(
    statistics: NDArray[np.float64], score: Callable[[NDArray[np.float64]], float], signature: str
) -> Measurement:
    """Score a test set, and sets of the same size that are drawn from it with replacement.

    The draws follow from the number of items alone, so that two systems on the same test set are
    scored on the same resampled ones. They are those of sacreBLEU's paired bootstrap (Koehn, 2004).

    Args:
        statistics: of each item, (n_items, n_statistics), such as (correct, 1) for an accuracy.
        score: of the summed statistics, (n_statistics,).
        signature: how the score is computed.
    """
    resamples = (round(float(score(sums)), RESAMPLE_DIGITS) for sums in _resampled_sums(statistics))
    value = float(score(statistics.sum(0)))
    return Measurement(value=value, signature=signature, resamples=tuple(resamples))


def measure_mean(values: Sequence[float]) -> Measurement:
    """The mean of the items' scores, on the test set and on the resampled ones."""
    statistics = np.column_stack([values, np.ones(len(values))])
    return measure(statistics, lambda sums: float(sums[0] / sums[1]), "")


def _resampled_sums(statistics: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The summed statistics (n_statistics,) of each resampled test set."""
    generator = np.random.default_rng(RESAMPLING_SEED)
    count = len(statistics)
    rows = max(1, _BLOCK // count)
    for first in range(0, RESAMPLES, rows):
        # In blocks, because all indices at once need 8 bytes x 1000 x items.
        drawn = generator.choice(count, size=(min(rows, RESAMPLES - first), count), replace=True)
        for indices in drawn:
            # The counts of the items times their statistics: one product, without a copy of rows.
            yield np.bincount(indices, minlength=count) @ statistics
