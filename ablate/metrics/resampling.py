"""Metrics that are computed from sums of statistics over items, also on resampled test sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.stats.resampling import resampled_scores
from ablate.store.records import Measurement


class Statistics(NamedTuple):
    """What `measure` needs to score a test set and resampled test sets.

    values: statistics of each item, (n_items, n_statistics), such as (correct, 1) for an accuracy.
    score: computes the score from the sums of statistics over items, (n_statistics,).
    signature: says how the score is computed.
    """

    values: NDArray[np.float64]
    score: Callable[[NDArray[np.float64]], float]
    signature: str


def measure(
    statistics: NDArray[np.float64], score: Callable[[NDArray[np.float64]], float], signature: str
) -> Measurement:
    """Score a test set and the resampled test sets of `resampled_scores`.

    Args:
        statistics: the statistics of each item, (n_items, n_statistics), such as (correct, 1) for
            an accuracy.
        score: computes the score from the sums of statistics over items, (n_statistics,).
        signature: says how the score is computed.
    """
    value, resamples = resampled_scores(statistics, score)
    return Measurement(value=value, signature=signature, resamples=resamples)
