"""Measurements of metrics that are functions of summed statistics, with resampled test sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.stats.resampling import resampled_scores
from ablate.store.records import Measurement


class Statistics(NamedTuple):
    """What a score of a test set follows from; the arguments of `measure`."""

    values: NDArray[np.float64]
    score: Callable[[NDArray[np.float64]], float]
    signature: str


def measure(
    statistics: NDArray[np.float64], score: Callable[[NDArray[np.float64]], float], signature: str
) -> Measurement:
    """Score a test set, and the resampled ones, as `resampled_scores` does.

    Args:
        statistics: of each item, (n_items, n_statistics), such as (correct, 1) for an accuracy.
        score: of the summed statistics, (n_statistics,).
        signature: how the score is computed.
    """
    value, resamples = resampled_scores(statistics, score)
    return Measurement(value=value, signature=signature, resamples=resamples)
