"""Tail probabilities of Student's t and of F, and critical values of t, by scipy.special.

Each function imports scipy, because that takes 0.1 to 0.2 s, and few commands need it.
"""

from __future__ import annotations

from functools import cache


def two_sided_p(t: float, df: float) -> float:
    """Two-sided p value of a t statistic: P(|T| > |t|) for `df` degrees of freedom, which may be a
    fraction or inf.
    """
    from scipy.special import stdtr

    return 2 * float(stdtr(df, -abs(t)))


def f_tail(f: float, df1: float, df2: float) -> float:
    """P(F > f) with `df1` and `df2` degrees of freedom."""
    from scipy.special import fdtrc

    return float(fdtrc(df1, df2, f))


@cache
def critical_t(level: float, df: float) -> float:
    """Critical value of the two-sided t test: the t with P(|T| > t) = level, such as 12.706 for
    0.05 and df = 1.

    Raises:
        ValueError: `level` is not between 0 and 1, or `df` is not positive.
    """
    from scipy.special import stdtrit

    if not 0 < level < 1 or df <= 0:
        raise ValueError(f"level={level} is not between 0 and 1, or df={df} is not positive")
    return -float(stdtrit(df, level / 2))
