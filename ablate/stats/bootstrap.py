"""Paired bootstrap over test sentences.

Source: Koehn, "Statistical Significance Tests for Machine Translation Evaluation" (2004), with a
    two-sided p value.
Every run is scored on the same resampled test sets, so that two rows are compared resample by
resample.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ablate.stats.significance import LEVEL

RESAMPLES = 1000  # sacreBLEU's default
RESAMPLING_SEED = 12345  # sacreBLEU's default; all runs have the same resampled test sets


@dataclass(frozen=True)
class BootstrapTest:
    """Result of a paired bootstrap.

    std: standard deviation of the resampled differences: the noise of the mean difference over test
        sentences.
    low, high: 95 % interval, symmetric about the difference on the original test set; it contains
        zero exactly if p >= 0.05.
    p: two-sided p value of a difference of 0. With d the difference on a resample, it is
        (1 + number of resamples with |d - mean(d)| >= |difference|) / (1 + resamples).
    """

    std: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    difference: float, pairs: Sequence[tuple[Sequence[float], Sequence[float]]]
) -> BootstrapTest:
    """Test the difference between a row and base by a paired bootstrap.

    Both tails count. sacreBLEU's test is one-sided: it counts the resamples with
    |d| - mean(|d|) > |difference|.

    Args:
        difference: mean over seeds of (row - base) on the test set.
        pairs: for each seed, the scores of the row and of base on the resampled test sets.
    """
    n_seeds = len(pairs)
    seed_differences = []
    for row, base in pairs:
        seed_differences.append([ours - theirs for ours, theirs in zip(row, base, strict=True)])
    differences = [sum(values) / n_seeds for values in zip(*seed_differences, strict=True)]
    mean = statistics.fmean(differences)
    deviations = sorted(abs(value - mean) for value in differences)
    exceeding = len(deviations) - bisect_left(deviations, abs(difference))
    # The test set itself counts as one resample, so p is never 0.
    p = (exceeding + 1) / (len(deviations) + 1)
    # p < LEVEL if at most this number of resamples deviates by |difference| or more.
    allowed = int(LEVEL * (len(deviations) + 1) - 1e-9) - 1
    margin = deviations[-1 - max(0, allowed)]
    std = statistics.pstdev(differences, mean)
    return BootstrapTest(std, difference - margin, difference + margin, p)
