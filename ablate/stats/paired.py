"""Differences between two rows, paired by seed: their mean, spread, interval and p value."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ablate.stats.student import critical, two_sided

LEVEL = 0.05  # of every interval and verdict: 95 % intervals


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, and what their spread says of it; from two pairs on.

    std: the sample standard deviation (n - 1).
    low, high: the 95 % interval of the mean (paired t).
    p: the two-sided p value of no difference.
    """

    n: int
    mean: float
    std: float
    low: float
    high: float
    p: float


def paired(differences: Sequence[float]) -> Difference | None:
    """The paired t test of these differences; None below two, since one says nothing of a spread."""
    n = len(differences)
    if n < 2:
        return None
    mean, std = statistics.fmean(differences), statistics.stdev(differences)
    error = std / math.sqrt(n)
    reach = critical(LEVEL, n - 1) * error
    unlike = 0.0 if mean else 1.0  # where every seed says the same
    p = two_sided(mean / error, n - 1) if error else unlike
    return Difference(n, mean, std, mean - reach, mean + reach, p)


def least_told(difference: Difference, level: float) -> float:
    """The least mean difference that would be told from noise at this level, with this n and this spread."""
    return critical(level, difference.n - 1) * difference.std / math.sqrt(difference.n)
