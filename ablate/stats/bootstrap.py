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
RESAMPLING_SEED = 12345  # sacreBLEU's default: the same test sets for every run


@dataclass(frozen=True)
class BootstrapTest:
    """Result of a paired bootstrap.

    std: standard deviation of the resampled differences: the noise of the test sentences in the
        mean difference.
    low, high: 95 % interval, symmetric about the difference on the test set itself; it contains
        zero exactly if p >= 0.05.
    p: two-sided p value of no difference. With d the difference on a resample, it is (1 + number of
        resamples with |d - mean(d)| >= |difference|) / (1 + resamples).
    """

    std: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    difference: float, pairs: Sequence[tuple[Sequence[float], Sequence[float]]]
) -> BootstrapTest:
    """Paired bootstrap test of a difference between a row and base.

    sacreBLEU counts the resamples with |d| - mean(|d|) > |difference|, which is a one-sided test;
    this one counts both tails.

    Args:
        difference: on the test set, the mean over seeds of (row - base).
        pairs: for each seed, the scores of the row and of base on the resampled test sets.
    """
    n = len(pairs)
    by_seed = []
    for row, base in pairs:
        by_seed.append([ours - theirs for ours, theirs in zip(row, base, strict=True)])
    differences = [sum(of_resample) / n for of_resample in zip(*by_seed, strict=True)]
    mean = statistics.fmean(differences)
    deviations = sorted(abs(value - mean) for value in differences)
    exceeding = len(deviations) - bisect_left(deviations, abs(difference))
    # The test set itself counts as one resample: p is never 0, which no number of resamples shows.
    p = (exceeding + 1) / (len(deviations) + 1)
    # The largest number of deviations of at least |difference| with which p is below the level.
    allowed = int(LEVEL * (len(deviations) + 1) - 1e-9) - 1
    margin = deviations[-1 - max(0, allowed)]
    std = statistics.pstdev(differences, mean)
    return BootstrapTest(std, difference - margin, difference + margin, p)
