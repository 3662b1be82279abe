"""Scores on resampled test sets, which are the same for every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ablate.stats.bootstrap import RESAMPLES, RESAMPLING_SEED

RESAMPLE_DIGITS = 6
_BLOCK = 1 << 22  # indices drawn at once


def resampled_scores(
    statistics: NDArray[np.float64], score: Callable[[NDArray[np.float64]], float]
) -> tuple[float, tuple[float, ...]]:
    """Score a test set, and sets of the same size that are drawn from it with replacement.

    The draws depend only on the number of items, so that all systems are scored on the same
    resampled test sets. sacreBLEU's paired bootstrap draws the same test sets (Koehn, 2004).

    Args:
        statistics: statistics of each item, (n_items, n_statistics), such as (correct, 1) for an
            accuracy.
        score: function from the summed statistics, (n_statistics,), to a score.

    Returns:
        The score, and the scores on the resampled test sets.
    """
    resamples = []
    for sums in _resampled_sums(statistics):
        resamples.append(round(float(score(sums)), RESAMPLE_DIGITS))
    return float(score(statistics.sum(0))), tuple(resamples)


def resampled_means(values: Sequence[float]) -> tuple[float, tuple[float, ...]]:
    """Mean score of the items, on the test set and on the resampled test sets."""
    statistics = np.column_stack([values, np.ones(len(values))])
    return resampled_scores(statistics, lambda sums: float(sums[0] / sums[1]))


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
