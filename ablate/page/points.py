"""The data of every figure: learning curves by panel, differences from base, and scores beside
costs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ablate.analysis.curves import Curve, all_speed_ups
from ablate.analysis.designs import DesignEffects
from ablate.analysis.scores import Scores
from ablate.analysis.table import Table, TableRow
from ablate.config.metrics import Metric
from ablate.plotting import SERIES

COSTS = {"flops": "training FLOPs", "seconds": "training time (s)", "params": "parameters"}
# A ratio of largest to smallest cost up to which a figure of costs would show nothing
SAME_COST = 1.001
FAR = 5.0  # times the median reach of rows, beyond which a row is off the axis
# times the median over rows of their largest perplexity, beyond which a panel has its own axis
FAR_ABOVE = 10.0


@dataclass(frozen=True)
class Panel:
    """Learning curves that share one pair of axes: base, and at most one row for each color.

    title: the group's name; with a number where a group needs several panels.
    names: the name of each curve in the legend.
    """

    title: str
    curves: tuple[Curve, ...]
    names: tuple[str, ...]

    def color(self, row: str) -> str:
        """The name of a row's color in the palette: `base`, or one of SERIES."""
        others = [curve.row for curve in self.curves if curve.group != "base"]
        return SERIES[others.index(row)] if row in others else "base"


@dataclass(frozen=True)
class Interval:
    """The difference of a row from base, with its 95 % interval where several seeds have one.

    name: the row's label in a figure.
    word: the verdict.
    """

    row: str
    group: str
    name: str
    word: str
    mean: float | None
    low: float | None
    high: float | None

    def reach(self, reference: float) -> float:
        """The largest distance of the mean or an end from a value; 0 without a mean."""
        ends = (self.mean, self.low, self.high)
        return max((abs(end - reference) for end in ends if end is not None), default=0.0)


def within_axis(rows: Sequence[Interval], reference: float = 0.0) -> list[Interval]:
    """The rows with a mean that an axis should hold: all, but for few ones far from the others.

    A row that learns nothing may differ from base a hundred times as much as the others, which
    would then not be told apart. Rows are left out above FAR times the median reach, among at least
    four.
    """
    drawn = [row for row in rows if row.mean is not None]
    most = FAR * median(row.reach(reference) for row in drawn) if len(drawn) >= 4 else 0.0
    return [row for row in drawn if row.reach(reference) <= most] if most else drawn


@dataclass(frozen=True)
class Point:
    """The score of a row and the cost of its training; `std` over seeds is 0 with a single seed,
    and that of logarithms if `is_log`.
    """

    row: str
    name: str
    is_base: bool
    cost: float
    score: float
    std: float
    is_log: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """One standard deviation below and above the score."""
        if self.is_log:
            return self.score / math.exp(self.std), self.score * math.exp(self.std)
        return self.score - self.std, self.score + self.std


@dataclass(frozen=True)
class Line:
    """The values of a row along an axis, with those of each seed, from the smallest place on."""

    row: str
    name: str
    points: tuple[tuple[float, Scores], ...]


def over_test_sizes(table: Table) -> tuple[list[Line], str]:
    """The main score of each training that rows evaluate on two sizes of test items or more, over
    the sizes; and what these are.
    """
    first: dict[tuple[str, ...], TableRow] = {}
    sizes: dict[tuple[str, ...], dict[int, Scores]] = {}
    name = ""
    for row in table.rows:
        training = tuple(run.run.id for run in row.runs)
        first.setdefault(training, row)
        sized = table.study.task.test_size(table.study.data, row.row.config)
        if sized is not None and row.scores[table.main.name].n:
            name, size = sized
            sizes.setdefault(training, {})[size] = row.scores[table.main.name]
    compared = {training: by_size for training, by_size in sizes.items() if len(by_size) > 1}
    rows = [first[training] for training in compared]
    lines = []
    for row, short, by_size in zip(rows, _names(rows), compared.values(), strict=True):
        lines.append(Line(row.row.label, short, tuple(sorted(by_size.items()))))
    return lines, name


def panels(curves: Sequence[Curve]) -> list[Panel]:
    """Return one panel per group, or several of nearly equal size for a group with more rows than
    colors.

    Curves without any evaluation are left out.
    """
    evaluated = [curve for curve in curves if curve.points]
    base = [curve for curve in evaluated if curve.group == "base"]
    groups = list(dict.fromkeys(curve.group for curve in evaluated if curve.group != "base"))
    if not groups:
        return [_panel("base", base)] if base else []
    return [
        panel
        for group in groups
        for panel in _of_group(group, _base_of(group, evaluated), evaluated)
    ]


def alike(groups: Sequence[Panel]) -> list[Panel]:
    """The panels that share a vertical axis: all, but for those with a row far above the others.

    A row that learns nothing may have hundreds of times the perplexity of the others, whose curves
    would then not be told apart. Panels are left out above FAR_ABOVE times the median over rows,
    among at least four.
    """
    tops = {
        panel.title: [curve.top for curve in panel.curves if curve.group != "base"]
        for panel in groups
    }
    every = [top for of_panel in tops.values() for top in of_panel]
    most = FAR_ABOVE * median(every) if len(every) >= 4 else math.inf
    return [panel for panel in groups if max(tops[panel.title], default=0.0) <= most]


def _base_of(group: str, evaluated: list[Curve]) -> list[Curve]:
    compared = {curve.base for curve in evaluated if curve.group == group}
    return [curve for curve in evaluated if curve.group == "base" and curve.row in compared]


def _of_group(group: str, base: list[Curve], evaluated: list[Curve]) -> list[Panel]:
    rows = [curve for curve in evaluated if curve.group == group]
    count = -(-len(rows) // len(SERIES))
    # Parts of nearly equal size, instead of a last panel with a single row.
    parts = [rows[len(rows) * i // count : len(rows) * (i + 1) // count] for i in range(count)]
    if count == 1:
        return [_panel(group, [*base, *rows])]
    return [_panel(f"{group} ({i} of {count})", [*base, *part]) for i, part in enumerate(parts, 1)]


def _panel(title: str, curves: list[Curve]) -> Panel:
    return Panel(title, tuple(curves), tuple(names([(curve.row, curve.group) for curve in curves])))


def intervals(table: Table, metric: Metric) -> list[Interval]:
    """Return the difference of every row but base."""
    rows = [row for row in table.rows if metric.name in row.verdicts]
    found = []
    for row, name in zip(rows, _names(rows), strict=True):
        verdict = row.verdicts[metric.name]
        low, high = verdict.interval or (None, None)
        found.append(
            Interval(row.row.label, row.row.group, name, verdict.word, verdict.mean, low, high)
        )
    return found


def contrasts(design: DesignEffects, metric: Metric) -> list[Interval]:
    """Return the effects of a design in a metric; none while scores are missing."""
    return [
        Interval(name, "", name, one.word(metric), one.value, one.low, one.high)
        for name, one in zip(design.names, design.by_metric.get(metric.name, ()), strict=False)
    ]


def ratios_by_axis(curves: Sequence[Curve]) -> dict[str, list[Interval]]:
    """Return the effective speed-up of every row by cost; only costs with some."""
    found: dict[str, list[Interval]] = {}
    for row, by_axis in all_speed_ups(curves).items():
        for axis, one in by_axis.items():
            low, high = one.interval or (None, None)
            word = (
                ""
                if low is None or high is None
                else "better"
                if low > 1
                else "worse"
                if high < 1
                else ""
            )
            if one.text:
                found.setdefault(axis, []).append(
                    Interval(row, "", row, word if one.mean else one.text, one.mean, low, high)
                )
    return {axis: rows for axis, rows in found.items() if any(row.mean is not None for row in rows)}


def points(table: Table, cost: str) -> list[Point]:
    """Return every row that has a score in the main metric and this cost, one of COSTS; none if all
    cost the same.
    """
    rows = [
        row
        for row in table.rows
        if row.scores[table.main.name].mean is not None and _cost(row, cost)
    ]
    found = []
    for row, name in zip(rows, _names(rows), strict=True):
        scores, value = row.scores[table.main.name], _cost(row, cost)
        if scores.mean is not None and value:
            is_base, std = row.row.group == "base", scores.std or 0.0
            point = Point(row.row.label, name, is_base, value, scores.mean, std, scores.is_log)
            found.append(point)
    costs = [point.cost for point in found]
    return found if costs and max(costs) / min(costs) > SAME_COST else []


def equal_costs(table: Table) -> list[str]:
    """Names of the costs in which all rows with a score are equal, so that a figure would show
    nothing.
    """
    scored = [row for row in table.rows if row.scores[table.main.name].mean is not None]
    known = {cost: [_cost(row, cost) for row in scored] for cost in COSTS}
    return [
        COSTS[cost]
        for cost, values in known.items()
        if len(values) > 1 and all(values) and not points(table, cost)
    ]


def _cost(row: TableRow, cost: str) -> float | None:
    return {"seconds": row.cost.seconds.mean, "flops": row.cost.flops, "params": float(row.params)}[
        cost
    ]


def _names(rows: Sequence[TableRow]) -> list[str]:
    return names([(row.row.label, row.row.group) for row in rows])


def names(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name for each (label, group): the label without its group where no other row has the
    same name.
    """
    short = [label.removeprefix(f"{group} ") for label, group in rows]
    counts = Counter(short)
    return [
        name if counts[name] == 1 else label for name, (label, _) in zip(short, rows, strict=True)
    ]
