"""Learning curves and effective speed-up, by step, tokens, FLOPs or time.

A curve is the dev perplexity of every run at each evaluation. The effective speed-up is the cost at
which base first reaches its final perplexity, divided by the cost at which the row first reaches
it. Base's is 1, even if base overfits and has passed its final perplexity long before the end. A
row of a study with learning-rate decay is still at a high learning rate when it crosses it, so its
speed-up is rather under- than overstated.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablate.formatting import plural
from ablate.stats.significance import paired_t_test

# What a curve may be drawn against, and its name on the axis.
AXES = {
    "step": "step",
    "tokens": "target tokens",
    "flops": "training FLOPs",
    "seconds": "training time (s)",
}


@dataclass(frozen=True)
class Curve:
    """Dev perplexity of a row.

    by_seed: (step, perplexity) of each evaluation; only seeds with one.
    costs: of the training up to a step, by (one of AXES, seed, step), as far as they are known;
        seconds are of a finished training with its evaluations, and equal for all steps.
    axis: one of AXES, that `points` and `mean` are along.
    base: the row that it is compared with.
    training: perplexity of the training items, where they are generated and repeated, so that a
        model may learn them by heart; else None.
    """

    row: str
    group: str
    by_seed: Mapping[int, Sequence[tuple[int, float]]]
    costs: Mapping[tuple[str, int, int], float] = field(default_factory=dict)
    axis: str = "step"
    base: str = "base"
    training: Curve | None = None

    @property
    def points(self) -> dict[int, tuple[tuple[float, float], ...]]:
        """(cost, perplexity) of each evaluation by seed; only seeds whose cost is known."""
        points = {}
        for seed in self.by_seed:
            if of_seed := self.along(self.axis, seed):
                points[seed] = of_seed
        return points

    @property
    def mean(self) -> tuple[tuple[float, float], ...]:
        """Geometric mean over seeds, which is the mean of the loss, at the steps that all seeds
        have.
        """
        seeds, by_step = self.points.keys(), dict[int, list[tuple[float, float]]]()
        for seed in seeds:
            for step, value in self.by_seed[seed]:
                cost = self.cost(self.axis, seed, step)
                if cost is not None:
                    by_step.setdefault(step, []).append((cost, value))
        means = []
        for _, points in sorted(by_step.items()):
            # Only common steps: a mean over fewer seeds would jump where a seed ends.
            if len(points) == len(seeds):
                costs, values = zip(*points, strict=True)
                # Equal costs as they are: a step is a whole number.
                mean = costs[0] if len(set(costs)) == 1 else sum(costs) / len(costs)
                means.append((mean, _geometric(values)))
        return tuple(means)

    @property
    def top(self) -> float:
        """The largest perplexity of any evaluation."""
        return max(value for points in self.by_seed.values() for _, value in points)

    def along(self, axis: str, seed: int) -> tuple[tuple[float, float], ...]:
        """(cost, perplexity) of each evaluation of a seed along one of AXES; empty while the cost
        is not known.
        """
        points = []
        for step, value in self.by_seed[seed]:
            cost = self.cost(axis, seed, step)
            if cost is not None:
                points.append((cost, value))
        return tuple(points)

    def cost(self, axis: str, seed: int, step: int) -> float | None:
        """The cost of a seed's training up to a step, along one of AXES; None while it is not
        known.
        """
        return step if axis == "step" else self.costs.get((axis, seed, step))

    def by(self, axis: str) -> Curve:
        """This curve along another of AXES."""
        training = self.training and self.training.by(axis)
        return replace(self, axis=axis, training=training)


def _geometric(values: Collection[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


@dataclass(frozen=True)
class SpeedUp:
    """Base's cost divided by the row's, each up to base's final perplexity, by seed; 2 if the row
    needs half.

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
        # So that twice as fast with one seed and half as fast with another is no speed-up.
        return _geometric(self.ratios.values())

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % t interval of the geometric mean over seeds; None below two seeds, or without a
        spread.
        """
        test = paired_t_test(list(map(math.log, self.ratios.values())))
        if self.missed or test is None:
            return None
        return math.exp(test.low), math.exp(test.high)

    @property
    def text(self) -> str:
        """`1.32 [1.10, 1.58]`, or how many seeds do not reach base's score; empty without any."""
        if self.missed:
            seeds = plural(self.missed + len(self.ratios), "seed")
            return f"not reached ({self.missed} of {seeds})"
        if self.mean is None:
            return ""
        if self.interval is None:
            return f"{self.mean:.2f}"
        low, high = self.interval
        return f"{self.mean:.2f} [{low:.2f}, {high:.2f}]"


def speed_ups(curves: Sequence[Curve]) -> dict[str, dict[str, SpeedUp]]:
    """The speed-up of every row over its base, by row and axis. Pairs are made by seed."""
    of_rows: dict[str, dict[str, SpeedUp]] = {}
    bases = [curve for curve in curves if curve.group == "base" and curve.by_seed]
    for base in bases:
        for curve in curves:
            if curve.base == base.row and curve is not base:
                of_rows[curve.row] = {axis: speed_up(curve, base, axis) for axis in AXES}
    return of_rows


def speed_up(curve: Curve, base: Curve, axis: str) -> SpeedUp:
    """The speed-up of one row along one of AXES, over the seeds with which base reaches its final
    score after its first evaluation.
    """
    ratios: dict[int, float] = {}
    missed = 0
    for seed in curve.by_seed.keys() & base.by_seed.keys():
        ours, theirs = curve.along(axis, seed), base.along(axis, seed)
        if not ours or not theirs:
            continue
        target = theirs[-1][1]
        # Base may have reached it long before its first evaluation: nobody knows its cost.
        if theirs[0][1] <= target:
            continue
        cost, of_base = cost_at(ours, target), cost_at(theirs, target)
        if cost is None or of_base is None:  # base reaches its own
            missed += 1
        else:
            ratios[seed] = of_base / cost
    # Sorted, because the common seeds above are a set.
    return SpeedUp(dict(sorted(ratios.items())), missed)


def cost_at(points: Sequence[tuple[float, float]], perplexity: float) -> float | None:
    """The cost at which a curve first reaches a perplexity; None if it never does.

    Between two evaluations the loss, the logarithm of the perplexity, is taken as linear in the
    cost. At the first evaluation the cost is that of the evaluation, which overstates it.
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
