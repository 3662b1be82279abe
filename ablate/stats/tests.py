"""Student's t, the paired t test, Holm's correction and Kendall's tau-b, in closed form.

Written here because scipy.stats takes more than a second to import, and `ablate table` must answer within one.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

LEVEL = 0.05  # significance level of all verdicts; intervals are at 1 - LEVEL, that is 95 %

_BISECTIONS = 64  # of an angle below pi / 2: more than enough for double precision


def two_sided_p(t: float, df: int) -> float:
    """Two-sided p value of a t statistic with `df` degrees of freedom: P(|T| > |t|), to about 1e-16.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
    """
    return max(0.0, 1.0 - _probability_within(math.atan(abs(t) / math.sqrt(df)), df))


@cache
def critical_t(level: float, df: int) -> float:
    """Critical value of the two-sided t test: the t with P(|T| > t) = level, such as 12.706 for 0.05 and df = 1.

    Raises:
        ValueError: `level` is not between 0 and 1, or `df` is below 1.
    """
    if not 0 < level < 1 or df < 1:
        raise ValueError(f"level={level} is not between 0 and 1, or df={df} is not at least 1")
    # Bisection over theta = atan(t / sqrt(df)), which is bounded where t is not.
    low, high = 0.0, math.pi / 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if 1.0 - _probability_within(middle, df) < level else (middle, high)
    return math.sqrt(df) * math.tan((low + high) / 2)


def _probability_within(theta: float, df: int) -> float:
    """P(|T| <= sqrt(df) tan(theta)), a finite sum of powers of cos(theta).

    For odd df, A = 2/pi (theta + sin(theta) (cos + 2/3 cos^3 + 2/3 4/5 cos^5 + ... up to cos^(df - 2))); the sum is
    empty for df = 1. For even df, A = sin(theta) (1 + 1/2 cos^2 + 1/2 3/4 cos^4 + ... up to cos^(df - 2)).
    """
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = df % 2
    term = total = (cosine if df > 1 else 0.0) if odd else 1.0
    for k in range(2 + odd, df - 1, 2):  # each coefficient is the previous one times (k - 1) / k
        term *= (k - 1) / k * cosine * cosine
        total += term
    return 2 / math.pi * (theta + sine * total) if odd else sine * total


@dataclass(frozen=True)
class PairedTTest:
    """Result of a paired t test on n differences.

    std: sample standard deviation of the differences (n - 1 in the denominator).
    low, high: 95 % interval of the mean, mean -+ t(0.05, n - 1) std / sqrt(n).
    p: two-sided p value of a mean of zero.
    """

    n: int
    mean: float
    std: float
    low: float
    high: float
    p: float


def paired_t_test(differences: Sequence[float]) -> PairedTTest | None:
    """Paired t test: t = mean / (std / sqrt(n)), with n - 1 degrees of freedom.

    Source: Student, "The Probable Error of a Mean", Biometrika (1908).

    Returns:
        The test, or None for fewer than two differences, which have no spread.
    """
    n = len(differences)
    if n < 2:
        return None
    mean, std = statistics.fmean(differences), statistics.stdev(differences)
    standard_error = std / math.sqrt(n)
    margin = critical_t(LEVEL, n - 1) * standard_error
    p_without_spread = 0.0 if mean else 1.0  # all differences are equal
    p = two_sided_p(mean / standard_error, n - 1) if standard_error else p_without_spread
    return PairedTTest(n, mean, std, mean - margin, mean + margin, p)


def minimum_detectable_difference(test: PairedTTest, level: float) -> float:
    """Smallest mean difference significant at `level`, given n and the spread: t(level, n - 1) std / sqrt(n)."""
    return critical_t(level, test.n - 1) * test.std / math.sqrt(test.n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for multiple tests: the probability of any false positive stays below the level.

    The i-th smallest of m p values becomes max over j <= i of min(1, (m - j + 1) p_j).

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics (1979).

    Returns:
        Adjusted p values in the order of `p_values`.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for factor, index in _holm_order(p_values):
        highest = max(highest, min(1.0, factor * p_values[index]))
        adjusted[index] = highest
    return adjusted


def holm_factors(p_values: Sequence[float]) -> list[int]:
    """Factor by which Holm's correction multiplies each p value: m for the smallest of m, then m - 1, and so on."""
    factors = [0] * len(p_values)
    for factor, index in _holm_order(p_values):
        factors[index] = factor
    return factors


def _holm_order(p_values: Sequence[float]) -> zip[tuple[int, int]]:
    """(factor, index) of each p value, the smallest first."""
    return zip(range(len(p_values), 0, -1), sorted(range(len(p_values)), key=p_values.__getitem__), strict=True)


def kendall_tau_b(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Kendall's rank correlation: 1 for the same order, -1 for the reverse, None if all of x or all of y are equal.

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
    return (concordant - discordant) / scale if scale else None
