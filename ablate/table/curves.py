"""Learning curves and effective speed-up, by step, tokens or FLOPs.

A curve is the dev perplexity of every run at each evaluation. The target is the final perplexity of
base. The effective speed-up of a row is the cost at which base first reaches the target, divided by
the cost at which the row first reaches it. Therefore base has the speed-up 1, even if it overfits
and reached the target long before the end. With learning-rate decay, a row that is faster than base
crosses the target at a high learning rate, so its speed-up is rather under- than overestimated.

Training time is no axis: other work on the machine changes it, so it shows nothing about a row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ablate.formatting import plural
from ablate.stats.significance import paired_t_test

# Cost -> title of the axis.
AXES = {
    "step": "step",
    "tokens": "target tokens",
    "flops": "training FLOPs",
}


@dataclass(frozen=True)
class Curve:
    """Dev perplexity of a row.

    label, group: label and group of the row.
    by_seed: (step, perplexity) of each evaluation, by seed; only seeds with an evaluation.
    costs: costs of the training by (axis, seed), up to each step where they are known.
    axis: key of AXES for the horizontal axis of `points` and `mean`.
    base: label of the row's base.
    vocab_size: size of the row's vocabulary.
    training: perplexity of the training items, if these are generated and repeated, so that a model
        can memorize them; otherwise None.
    diverged, unfinished: seeds whose training has diverged or has not ended.
    """

    label: str
    group: str
    by_seed: Mapping[int, Sequence[tuple[int, float]]]
    costs: Mapping[tuple[str, int], Mapping[int, float]] = field(default_factory=dict)
    axis: str = "step"
    base: str = "base"
    vocab_size: int = 0
    training: Curve | None = None
    diverged: frozenset[int] = frozenset()
    unfinished: frozenset[int] = frozenset()

    @property
    def is_base(self) -> bool:
        """Whether other rows are compared with this row."""
        return self.base == self.label

    @cached_property
    def points(self) -> dict[int, tuple[tuple[float, float], ...]]:
        """(cost, perplexity) of each evaluation, by seed; only seeds whose cost is known."""
        points = {}
        for seed in self.by_seed:
            if seed_points := self.along(self.axis, seed):
                points[seed] = seed_points
        return points

    @cached_property
    def mean(self) -> tuple[tuple[float, float], ...]:
        """(mean cost, geometric mean of the perplexity) over seeds, at the steps that all seeds
        have. The geometric mean is the perplexity of the mean loss.
        """
        seeds = self.points.keys()
        step_points: dict[int, list[tuple[float, float]]] = {}
        for seed in seeds:
            for step, value in self.by_seed[seed]:
                cost = self.cost(self.axis, seed, step)
                if cost is not None:
                    step_points.setdefault(step, []).append((cost, value))
        means = []
        for _, points in sorted(step_points.items()):
            # Only steps that all seeds have: a mean over fewer seeds would jump where a seed ends.
            if len(points) == len(seeds):
                costs, values = zip(*points, strict=True)
                # The mean of equal costs may not equal them, because it is rounded.
                mean = costs[0] if len(set(costs)) == 1 else sum(costs) / len(costs)
                means.append((mean, _geometric(values)))
        return tuple(means)

    @cached_property
    def highest(self) -> float:
        """The largest perplexity of any evaluation."""
        return max(value for points in self.by_seed.values() for _, value in points)

    def along(self, axis: str, seed: int) -> tuple[tuple[float, float], ...]:
        """(cost, perplexity) of each evaluation of a seed; empty while the cost is unknown."""
        points = []
        for step, value in self.by_seed[seed]:
            cost = self.cost(axis, seed, step)
            if cost is not None:
                points.append((cost, value))
        return tuple(points)

    def cost(self, axis: str, seed: int, step: int) -> float | None:
        """The cost of a seed's training up to a step, by a key of AXES; None while it is
        unknown.
        """
        return step if axis == "step" else self.costs.get((axis, seed), {}).get(step)

    def over(self, axis: str) -> Curve:
        """This curve over another axis, a key of AXES."""
        training = self.training and self.training.over(axis)
        return replace(self, axis=axis, training=training)


def _geometric(values: Collection[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


@dataclass(frozen=True)
class SpeedUp:
    """Cost of base divided by the cost of the row, each up to base's final perplexity. It is 2 if
    the row needs half of base's cost.

    ratios: ratio of the costs, by seed; only seeds with which the row reaches the perplexity.
    missed: number of seeds with which the row does not reach the perplexity, or diverges.
    """

    ratios: Mapping[int, float] = field(default_factory=dict)
    missed: int = 0

    @property
    def mean(self) -> float | None:
        """Geometric mean over seeds; None unless every seed reaches base's score."""
        if self.missed or not self.ratios:
            return None
        # Twice as fast with one seed and half as fast with another must give 1.
        return _geometric(self.ratios.values())

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % t interval of the geometric mean over seeds; None with fewer than two seeds, or if
        all ratios are equal.
        """
        test = paired_t_test(list(map(math.log, self.ratios.values())))
        if self.missed or test is None:
            return None
        return math.exp(test.low), math.exp(test.high)

    @property
    def text(self) -> str:
        """`1.32 [1.10, 1.58]`, or `not reached with 1 of 3 seeds`; empty without seeds."""
        if self.missed:
            seeds = plural(self.missed + len(self.ratios), "seed")
            return f"not reached with {self.missed} of {seeds}"
        if self.mean is None:
            return ""
        if self.interval is None:
            return f"{self.mean:.2f}"
        low, high = self.interval
        return f"{self.mean:.2f} [{low:.2f}, {high:.2f}]"


def speed_ups(curves: Sequence[Curve]) -> dict[str, dict[str, SpeedUp]]:
    """The speed-up of every row over its base, paired by seed, by row and axis. Rows with another
    vocabulary than base are left out, because their perplexities cannot be compared.
    """
    result: dict[str, dict[str, SpeedUp]] = {}
    bases = [curve for curve in curves if curve.is_base and curve.by_seed]
    for base in bases:
        for curve in curves:
            is_compared = curve.base == base.label and curve is not base
            if is_compared and curve.vocab_size == base.vocab_size:
                result[curve.label] = {axis: speed_up(curve, base, axis) for axis in AXES}
    return result


def speed_up(curve: Curve, base: Curve, axis: str) -> SpeedUp:
    """The speed-up of a row over its base, by a key of AXES.

    Seeds with which base reaches its final perplexity at its first evaluation do not count, because
    the cost at which it was reached is unknown. Neither do seeds with which base has diverged, or
    base or the row has not ended.
    """
    ratios: dict[int, float] = {}
    missed = 0
    seeds = base.by_seed.keys() - base.diverged - base.unfinished - curve.unfinished
    for seed in sorted(seeds & (curve.by_seed.keys() | curve.diverged)):
        base_points = base.along(axis, seed)
        if not base_points or base_points[0][1] <= base_points[-1][1]:
            continue
        if seed in curve.diverged:
            missed += 1
        elif points := curve.along(axis, seed):
            target = base_points[-1][1]
            cost = cost_at(points, target)
            base_cost = cost_at(base_points, target)
            assert base_cost is not None
            if cost is None:
                missed += 1
            else:
                ratios[seed] = base_cost / cost
    return SpeedUp(ratios, missed)


def cost_at(points: Sequence[tuple[float, float]], perplexity: float) -> float | None:
    """The cost at which a curve first reaches a perplexity; None if it never does.

    The loss, which is the logarithm of the perplexity, is interpolated linearly between two
    evaluations. If the first evaluation is low enough, its cost is returned, which may be too high.
    """
    previous: tuple[float, float] | None = None
    for cost, value in points:
        if value <= perplexity:
            if previous is None:
                return cost
            previous_cost, previous_value = previous
            fraction = math.log(previous_value / perplexity) / math.log(previous_value / value)
            return previous_cost + fraction * (cost - previous_cost)
        previous = (cost, value)
    return None
