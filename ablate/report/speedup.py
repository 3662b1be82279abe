"""Effective speed-up: how much less than base a row needs to reach base's final score.

The score is the dev perplexity of the learning curves. A row of a study with learning-rate decay is still at a high
learning rate when it crosses base's final score, so its speed-up is rather under- than overstated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ablate.formatting import plural
from ablate.report.curves import AXES, Curve
from ablate.stats.significance import paired_t_test


@dataclass(frozen=True)
class SpeedUp:
    """Base's cost divided by the row's cost at base's final score, by seed; 2 if the row needs half.

    ratios: for the seeds with which the row reaches it.
    missed: number of seeds with which it does not.
    """

    ratios: Mapping[int, float] = field(default_factory=dict)
    missed: int = 0

    @property
    def mean(self) -> float | None:
        """Geometric mean over seeds; None unless every seed reaches base's score."""
        if self.missed or not self.ratios:
            return None
        # Geometric, so that twice as fast with one seed and half as fast with another is no speed-up.
        return math.exp(sum(map(math.log, self.ratios.values())) / len(self.ratios))

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % t interval of the geometric mean over seeds; None below two seeds."""
        test = None if self.missed else paired_t_test([math.log(ratio) for ratio in self.ratios.values()])
        return None if test is None else (math.exp(test.low), math.exp(test.high))

    @property
    def text(self) -> str:
        """`1.32 [1.10, 1.58]`, or how many seeds do not reach base's score; empty without any."""
        if self.missed:
            return f"not reached ({self.missed} of {plural(self.missed + len(self.ratios), 'seed')})"
        if self.mean is None:
            return ""
        interval = "" if self.interval is None else " [{:.2f}, {:.2f}]".format(*self.interval)
        return f"{self.mean:.2f}{interval}"


def speed_ups(curves: Sequence[Curve], base: Curve) -> dict[str, dict[str, SpeedUp]]:
    """The speed-up of every row but base, by row and axis. Pairs are made by seed."""
    return {curve.row: {axis: speed_up(curve, base, axis) for axis in AXES} for curve in curves if curve is not base}


def all_speed_ups(curves: Sequence[Curve]) -> dict[str, dict[str, SpeedUp]]:
    """The speed-ups for all bases of a study, each with its rows."""
    found: dict[str, dict[str, SpeedUp]] = {}
    for base in (curve for curve in curves if curve.group == "base" and curve.by_seed):
        found |= speed_ups([curve for curve in curves if curve.base == base.row], base)
    return found


def speed_up(curve: Curve, base: Curve, axis: str) -> SpeedUp:
    """The speed-up of one row along one of AXES."""
    ratios: dict[int, float] = {}
    missed = 0
    for seed in curve.by_seed.keys() & base.by_seed.keys():
        ours, theirs = curve.along(axis, seed), base.along(axis, seed)
        if not ours or not theirs:
            continue
        total, target = theirs[-1]
        cost = cost_at(ours, target)
        if cost is None:
            missed += 1
        else:
            ratios[seed] = total / cost
    # Sorted, because the common seeds above are a set.
    return SpeedUp(dict(sorted(ratios.items())), missed)


def cost_at(points: Sequence[tuple[float, float]], perplexity: float) -> float | None:
    """The cost at which a curve first reaches a perplexity; None if it never does.

    Between two evaluations the loss, the logarithm of the perplexity, is taken as linear in the cost. At the first
    evaluation the cost is that of the evaluation, which overstates it.
    """
    before: tuple[float, float] | None = None
    for cost, value in points:
        if value <= perplexity:
            if before is None:
                return cost
            share = math.log(before[1] / perplexity) / math.log(before[1] / value)
            return before[0] + share * (cost - before[0])
        before = (cost, value)
    return None
