"""Paired bootstrap over test sentences.

Source: Koehn, "Statistical Significance Tests for Machine Translation Evaluation" (2004); p value as in sacreBLEU.
Every run is scored on the same resampled test sets, so that two rows are compared resample by resample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ablate.stats.tests import LEVEL

RESAMPLES = 1000  # sacreBLEU's default
RESAMPLING_SEED = 12345  # sacreBLEU's default: the same test sets for every run


@dataclass(frozen=True)
class BootstrapTest:
    """Result of a paired bootstrap.

    n: number of seeds in the mean difference.
    difference: on the test set itself.
    low, high: 95 % interval, from the percentiles of the resampled differences.
    p: p value of no difference. With s the absolute difference on a resample, it is (1 + number of resamples with
        s - mean(s) > |difference|) / (1 + resamples), as in sacreBLEU; but 1 if row and base never differ.
    """

    n: int
    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(difference: float, pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> BootstrapTest:
    """Paired bootstrap test of a difference between a row and base.

    Args:
        difference: on the test set, the mean over seeds of (row - base).
        pairs: for each seed, the scores of the row and of base on the resampled test sets.
    """
    n = len(pairs)
    differences = [sum(row - base for row, base in scores) / n for scores in _by_resample(pairs)]
    sizes = [abs(value) for value in differences]
    mean_size = sum(sizes) / len(sizes)
    exceeding = sum(size - mean_size > abs(difference) for size in sizes)
    p = (exceeding + 1) / (len(sizes) + 1) if difference or any(differences) else 1.0
    differences.sort()
    tail = int(len(differences) * LEVEL / 2)
    return BootstrapTest(n, difference, differences[tail], differences[-1 - tail], p)


def _by_resample(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> Iterator[tuple[tuple[float, float], ...]]:
    """For each resample, the (row, base) scores of every seed."""
    return zip(*(zip(row, base, strict=True) for row, base in pairs), strict=True)
