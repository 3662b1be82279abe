"""The paired t test, Fisher's exact test, Holm's correction and Kendall's tau-b, in closed form."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ablate.stats.distributions import critical_t, two_sided_p

LEVEL = 0.05  # significance level of all verdicts; intervals are at 1 - LEVEL, that is 95 %
POWER = 0.8  # probability of finding a true difference, in every statement about power


@dataclass(frozen=True)
class PairedTTest:
    """Result of a paired t test on n differences with sample standard deviation s.

    low, high: 95 % interval of the mean, mean -+ t(0.05, n - 1) s / sqrt(n).
    p: two-sided p value of a mean of zero.
    """

    mean: float
    low: float
    high: float
    p: float


def paired_t_test(differences: Sequence[float], level: float = LEVEL) -> PairedTTest | None:
    """Paired t test: t = mean / (std / sqrt(n)), with n - 1 degrees of freedom. The confidence
    interval is at 1 - level.

    Source: Student, "The Probable Error of a Mean", Biometrika (1908).

    Returns:
        The test, or None for fewer than two differences, or equal ones.
    """
    n = len(differences)
    if n < 2:
        return None
    mean = statistics.fmean(differences)
    std = statistics.stdev(differences)
    if std < rounding_error(differences):
        return None
    standard_error = std / math.sqrt(n)
    margin = critical_t(level, n - 1) * standard_error
    p = two_sided_p(mean / standard_error, n - 1)
    return PairedTTest(mean, mean - margin, mean + margin, p)


def rounding_error(values: Iterable[float]) -> float:
    """Largest spread that rounding errors give to values that would be equal without them."""
    return 1e-12 * (1.0 + max(map(abs, values)))


def fisher_p(events: int, n: int, base_events: int, base_n: int) -> float:
    """One-sided p value of Fisher's exact test: at least `events` of `n`, given `base_events` of
    `base_n`.

    Source: Fisher, Statistical Methods for Research Workers (5th edition, 1934), section 21.02.
    """
    total = events + base_events
    # Integers, which have no rounding errors.
    ways = 0
    for k in range(events, min(n, total) + 1):
        ways += math.comb(n, k) * math.comb(base_n, total - k)
    return ways / math.comb(n + base_n, total)


class HolmTest(NamedTuple):
    """One of several tests after Holm's correction.

    p: adjusted p value, on a scale on which a test is significant if p < LEVEL.
    level: level at which the p value before the correction is compared. A confidence interval at
        this level excludes zero exactly if the test is significant.
    """

    p: float
    level: float

    @property
    def is_significant(self) -> bool:
        """Whether the hypothesis of the test is rejected."""
        return self.p < LEVEL


def repeated_comparisons(keys: Mapping[str, Hashable]) -> dict[str, str]:
    """The rows that repeat the comparison of an earlier row: label of the earlier row, by label.
    Both are one hypothesis, which is tested once.

    Args:
        keys: runs and evaluation of each row, by its label; they are equal for equal comparisons.
    """
    first: dict[Hashable, str] = {}
    repeated = {}
    for label, key in keys.items():
        earlier = first.setdefault(key, label)
        if earlier != label:
            repeated[label] = earlier
    return repeated


def holm_correction(
    p_values: Sequence[float],
    n_tests: int,
    level: float = LEVEL,
    rejected: Collection[int] = (),
) -> list[HolmTest]:
    """Correct several tests by Holm's step-down method. The probability of any false positive stays
    below the level.

    The i-th smallest of m p values is adjusted to max over j <= i of min(1, (m - j + 1) p_j), times
    LEVEL / level. The method stops at the first test that is not significant; the later ones are
    tested at the level of that step.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of
        Statistics (1979).

    Args:
        p_values: p values of the tests.
        n_tests: number m of all tests; 1 means no correction. Missing p values count as not
            significant, so that no verdict is withdrawn when they come.
        level: for all tests together.
        rejected: indexes of the tests that were significant at an earlier look. The method goes on
            with the other tests.
    """
    if n_tests == 1:
        return [HolmTest(min(1.0, p * LEVEL / level), level) for p in p_values]
    corrected = {}
    level_of_rejected = level / max(1, n_tests - len(rejected) + 1)
    for index in rejected:
        p = min(1.0, p_values[index] * LEVEL / level_of_rejected)
        corrected[index] = HolmTest(p, level_of_rejected)
    open_tests = max(1, n_tests - len(rejected))
    divisor = open_tests
    has_stopped = False
    highest = 0.0
    ordered = sorted(set(range(len(p_values))).difference(rejected), key=p_values.__getitem__)
    for step, index in enumerate(ordered):
        adjusted = min(1.0, p_values[index] * LEVEL * max(1, open_tests - step) / level)
        highest = max(highest, adjusted)
        has_stopped = has_stopped or p_values[index] >= level / divisor
        corrected[index] = HolmTest(highest, level / divisor)
        if not has_stopped:
            divisor = max(1, divisor - 1)
    return [corrected[index] for index in range(len(p_values))]


def kendall_tau_b(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Kendall's rank correlation: 1 for the same order, -1 for the reverse order, None if all
    values of x or of y are equal.

    tau_b = (concordant - discordant) / sqrt((pairs - ties in x) (pairs - ties in y)).

    Source: Kendall, "The Treatment of Ties in Ranking Problems", Biometrika (1945).
    """
    concordant = discordant = ties_x = ties_y = 0
    for (x1, y1), (x2, y2) in itertools.combinations(zip(x, y, strict=True), 2):
        sign = (x1 - x2) * (y1 - y2)
        concordant += sign > 0
        discordant += sign < 0
        ties_x += x1 == x2
        ties_y += y1 == y2
    pairs = math.comb(len(x), 2)
    scale = math.sqrt((pairs - ties_x) * (pairs - ties_y))
    if not scale:
        return None
    return (concordant - discordant) / scale
