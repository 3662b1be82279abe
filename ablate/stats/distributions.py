"""Tail probabilities of Student's t and of F, and critical values of t.

Written here because scipy.special, with numpy, takes as long to load as a fifth of `ablate plan`
(0.16 s of 0.8 s), and scipy.stats more than a second.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

_NORMAL = NormalDist()
_TINY = 1e-300
_PRECISION = 1e-16
_MOST_TERMS = 10_000
_MOST_STEPS = 100
_STEP = 1e-12
_LARGE_DF = 1e7  # t with more degrees of freedom equals the normal distribution to about 1e-7


def two_sided_p(t: float, df: float) -> float:
    """Two-sided p value of a t statistic: P(|T| > |t|) for `df` degrees of freedom, which may be a
    fraction or inf.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.1 and 26.5.27.
    """
    if df > _LARGE_DF:
        return math.erfc(abs(t) / math.sqrt(2))
    if abs(t) < 1:  # p is near 1, where df / (df + t^2) would lose the digits of t
        return 1.0 - incomplete_beta(t * t / (df + t * t), 0.5, df / 2)
    return incomplete_beta(df / (df + t * t), df / 2, 0.5)


def f_tail(f: float, df1: float, df2: float) -> float:
    """P(F > f) with `df1` and `df2` degrees of freedom (Abramowitz and Stegun, 26.6.2)."""
    if f < 1:  # df2 / (df2 + df1 f) would lose the digits of a small f
        return 1.0 - incomplete_beta(df1 * f / (df2 + df1 * f), df1 / 2, df2 / 2)
    return incomplete_beta(df2 / (df2 + df1 * f), df2 / 2, df1 / 2)


@cache
def critical_t(level: float, df: float) -> float:
    """Critical value of the two-sided t test: the t with P(|T| > t) = level, such as 12.706 for
    0.05 and df = 1.

    Raises:
        ValueError: `level` is not between 0 and 1, or `df` is not positive.
    """
    if not 0 < level < 1 or df <= 0:
        raise ValueError(f"level={level} is not between 0 and 1, or df={df} is not positive")
    if df > _LARGE_DF:
        return -_NORMAL.inv_cdf(level / 2)
    # Newton's method for log p over theta = atan(t / sqrt(df)): concave, so it approaches the root
    # from the right.
    log_density = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) + math.log(2 / math.sqrt(math.pi))
    theta = math.atan(-_NORMAL.inv_cdf(level / 2) / math.sqrt(df))
    for _ in range(_MOST_STEPS):
        p = incomplete_beta(math.cos(theta) ** 2, df / 2, 0.5)
        step = math.log(p / level) * p * math.exp(-log_density) / math.cos(theta) ** (df - 1)
        # t grows without bound as theta approaches pi / 2: a step goes at most half the way there.
        theta = min(theta + step, (theta + math.pi / 2) / 2)
        if abs(step) < _STEP * theta:
            break
    return math.sqrt(df) * math.tan(theta)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularized incomplete beta function I_x(a, b).

    By the continued fraction of Abramowitz and Stegun, 26.5.8, evaluated by Lentz's method; where
    it converges slowly, by I_x(a, b) = 1 - I_(1-x)(b, a).
    """
    if not 0 < x < 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - incomplete_beta(1 - x, b, a)
    # In logarithms, because the gamma functions overflow from about 171 on.
    log_scale = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(log_scale) / (a * _continued_fraction(x, a, b))


def _continued_fraction(x: float, a: float, b: float) -> float:
    """1 + d1 / (1 + d2 / (1 + ...)) with the coefficients of 26.5.8."""
    value = c = 1.0
    d = 0.0
    for k in range(1, _MOST_TERMS):
        m = k // 2
        if k % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / _nonzero(1 + term * d)
        c = _nonzero(1 + term / c)
        value *= c * d
        # The last factor is 1 to double precision: further terms change nothing.
        if abs(c * d - 1) < _PRECISION:
            break
    return value


def _nonzero(value: float) -> float:
    # Lentz's method divides by these terms; a zero is replaced by a number too small to matter.
    return value if abs(value) > _TINY else _TINY
