"""What the choice of test sentences may have made: the paired bootstrap (Koehn, 2004), as sacreBLEU has it.

Every run is scored on the same resampled test sets, so two runs, or the means of two rows over seeds, compare
resample by resample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ablate.stats.paired import LEVEL

RESAMPLES = 1000  # sacreBLEU's number
RESAMPLING_SEED = 12345  # and its seed: every run meets the same test sets


@dataclass(frozen=True)
class Resampled:
    """A difference on the test set, and on the test sets that might have been drawn instead.

    n: seeds that the difference is the mean of.
    low, high: between them lie 95 % of the resampled differences.
    p: sacreBLEU's p value of no difference; 1 where no resample differs, of which sacreBLEU says 1/1001.
    """

    n: int
    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(difference: float, pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Resampled:
    """The paired bootstrap of a difference.

    Args:
        difference: on the whole test set: the mean over seeds of (row - base).
        pairs: for each seed the scores of row and of base on the resampled test sets.
    """
    n = len(pairs)
    found = [sum(row - base for row, base in one) / n for one in _by_resample(pairs)]
    sizes = [abs(value) for value in found]
    mean = sum(sizes) / len(sizes)
    exceeding = sum(size - mean > abs(difference) for size in sizes)
    ordered = sorted(found)
    outside = int(len(ordered) * LEVEL / 2)
    p = (exceeding + 1) / (len(found) + 1) if difference or any(found) else 1.0
    return Resampled(n, difference, ordered[outside], ordered[-1 - outside], p)


def _by_resample(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> zip[tuple[tuple[float, float], ...]]:
    return zip(*(zip(row, base, strict=True) for row, base in pairs), strict=True)
