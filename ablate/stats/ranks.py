"""Whether two columns of numbers put rows into the same order: Kendall's tau-b (Kendall, 1945)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def kendall(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Tau-b: 1 for the same order, -1 for the reverse; ties count for neither. None where one column has no order."""
    agree = disagree = ties_ours = ties_theirs = 0
    for (a, x), (b, y) in itertools.combinations(zip(ours, theirs, strict=True), 2):
        sign = (a - b) * (x - y)
        agree += sign > 0
        disagree += sign < 0
        ties_ours += a == b
        ties_theirs += x == y
    pairs = math.comb(len(ours), 2)
    scale = math.sqrt((pairs - ties_ours) * (pairs - ties_theirs))
    return (agree - disagree) / scale if scale else None
