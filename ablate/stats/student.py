"""Student's t distribution with a whole number of degrees of freedom, in closed form.

Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4: with theta = atan(t / sqrt(df)), the
probability of |T| <= t is a finite sum of powers of cos theta.
"""

from __future__ import annotations

import math
from functools import cache

_HALVINGS = 64  # of an angle below pi / 2: more than a float can tell apart


def two_sided(t: float, df: int) -> float:
    """The probability of a |T| above |t|: the p value of a two-sided test. Its error is about 1e-16."""
    return max(0.0, 1.0 - _within(math.atan(abs(t) / math.sqrt(df)), df))


@cache
def critical(level: float, df: int) -> float:
    """The t that |T| exceeds with this probability: 12.706 at level 0.05 and one degree of freedom."""
    if not 0 < level < 1 or df < 1:
        raise ValueError(f"level={level} is not between 0 and 1, or df={df} is not at least 1")
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if 1.0 - _within(middle, df) < level else (middle, high)
    return math.sqrt(df) * math.tan((low + high) / 2)


def _within(theta: float, df: int) -> float:
    """The probability of |T| <= sqrt(df) tan(theta)."""
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = df % 2
    term = total = (cosine if df > 1 else 0.0) if odd else 1.0
    for k in range(2 + odd, df - 1, 2):  # each coefficient is the last one's times (k - 1) / k
        term *= (k - 1) / k * cosine * cosine
        total += term
    return 2 / math.pi * (theta + sine * total) if odd else sine * total
