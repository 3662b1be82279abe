"""The data of figures: curves by panel, differences from base, scores beside costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from ablate.plotting import SERIES
from ablate.stats.metrics import Metric
from ablate.table.curves import Curve, speed_ups
from ablate.table.designs import DesignEffects
from ablate.table.scores import Scores
from ablate.table.table import Table, TableRow

COSTS = {"flops": "training FLOPs", "seconds": "training time (s)", "params": "parameters"}
# A ratio of largest to smallest cost up to which a figure of costs would show nothing
SAME_COST = 1.001
FAR = 5.0  # times the median reach of rows, beyond which a row is off the axis
# times the median over rows of their largest perplexity, beyond which a panel has its own axis
FAR_ABOVE = 10.0

T = TypeVar("T")


@dataclass(frozen=True)
class Panel:
    """Learning curves that share one pair of axes: base, and at most one row for each color.

    title: the group's name; with a number where a group needs several panels.
    names: the name of each curve in the legend.
    """

    title: str
    curves: tuple[Curve, ...]
    names: tuple[str, ...]

    @property
    def tops(self) -> list[float]:
        """The largest perplexity of each row but base."""
        return [curve.top for curve in self.curves if curve.group != "base"]

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

    @property
    def ends(self) -> list[float]:
        """The mean and the ends of the interval, as far as there are any."""
        return [end for end in (self.mean, self.low, self.high) if end is not None]

    def reach(self, reference: float) -> float:
        """The largest distance of the mean or an end from a value; 0 without a mean."""
        return max((abs(end - reference) for end in self.ends), default=0.0)


def within_axis(rows: Sequence[Interval], reference: float = 0.0) -> list[Interval]:
    """The rows with a mean that an axis should hold: all, but for few ones far from the others.

    A row that learns nothing may differ from base a hundred times as much as the others, which
    would then not be told apart. Rows are left out above FAR times the median reach, among at least
    four.
    """
    drawn = [row for row in rows if row.mean is not None]
    if len(drawn) < 4:
        return drawn
    most = FAR * median(row.reach(reference) for row in drawn)
    return [row for row in drawn if not most or row.reach(reference) <= most]


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
    rows: dict[tuple[str, ...], TableRow] = {}  # the first of each training
    sizes: dict[tuple[str, ...], dict[int, Scores]] = {}
    name = ""
    for row in table.rows:
        ids, scores = tuple(run.id for run in row.runs), row.scores[table.main.name]
        recipe = row.row.recipe
        sized = recipe.test_size if recipe else None
        rows.setdefault(ids, row)
        if sized is not None and scores.n:
            name, size = sized
            sizes.setdefault(ids, {})[size] = scores
    compared = {ids: by_size for ids, by_size in sizes.items() if len(by_size) > 1}
    short = _names(rows[ids] for ids in compared)
    lines = []
    for ids, by_size in compared.items():
        label = rows[ids].row.label
        lines.append(Line(label, short[label], tuple(sorted(by_size.items()))))
    return lines, name


def panels(curves: Sequence[Curve]) -> list[Panel]:
    """Return one panel per group, or several of nearly equal size for a group with more rows than
    colors.

    Curves without any evaluation are left out.
    """
    bases, groups = [], dict[str, list[Curve]]()
    for curve in curves:
        if curve.points and curve.group == "base":
            bases.append(curve)
        elif curve.points:
            groups.setdefault(curve.group, []).append(curve)
    if not groups:
        return [_panel("base", bases)] if bases else []
    shown = []
    for group, rows in groups.items():
        compared = {curve.base for curve in rows}
        base = [curve for curve in bases if curve.row in compared]
        parts = split(rows, len(SERIES))
        for number, part in enumerate(parts, 1):
            title = group
            if len(parts) > 1:
                title += f" ({number} of {len(parts)})"
            shown.append(_panel(title, [*base, *part]))
    return shown


def split(rows: Sequence[T], most: int) -> list[Sequence[T]]:
    """Parts of nearly equal size of at most so many rows, in place of full ones and a rest."""
    count, parts = -(-len(rows) // most), []
    for part in range(count):
        parts.append(rows[len(rows) * part // count : len(rows) * (part + 1) // count])
    return parts


def alike(groups: Sequence[Panel]) -> list[Panel]:
    """The panels that share a vertical axis: all, but for those with a row far above the others.

    A row that learns nothing may have hundreds of times the perplexity of the others, whose curves
    would then not be told apart. Panels are left out above FAR_ABOVE times the median over rows,
    among at least four.
    """
    tops: list[float] = []
    for panel in groups:
        tops += panel.tops
    if len(tops) < 4:
        return list(groups)
    most = FAR_ABOVE * median(tops)
    return [panel for panel in groups if max(panel.tops, default=0.0) <= most]


def _panel(title: str, curves: list[Curve]) -> Panel:
    short = names({curve.row: curve.group for curve in curves})
    return Panel(title, tuple(curves), tuple(short.values()))


def intervals(table: Table, metric: Metric) -> list[Interval]:
    """Return the difference of every row but base; none while no row has any."""
    rows = [row for row in table.rows if metric.name in row.verdicts]
    drawn, short = [], _names(rows)
    for row in rows:
        verdict, label = row.verdicts[metric.name], row.label
        low, high = verdict.interval or (None, None)
        place = (label, row.row.group, short[label])
        drawn.append(Interval(*place, verdict.word, verdict.mean, low, high))
    return _with_means(drawn)


def _with_means(rows: list[Interval]) -> list[Interval]:
    return rows if any(row.mean is not None for row in rows) else []


def contrasts(design: DesignEffects, metric: Metric) -> list[Interval]:
    """Return the effects of a design in a metric; none while scores are missing."""
    drawn = []
    for name, effect in zip(design.names, design.by_metric.get(metric.name, ()), strict=False):
        ends = (effect.value, effect.low, effect.high)
        drawn.append(Interval(name, "", name, effect.word(metric), *ends))
    return _with_means(drawn)


def ratios_by_axis(curves: Sequence[Curve]) -> dict[str, list[Interval]]:
    """Return the effective speed-up of every row by cost; only costs with some."""
    ratios: dict[str, list[Interval]] = {}
    for row, by_axis in speed_ups(curves).items():
        for axis, ratio in by_axis.items():
            low, high = ratio.interval or (None, None)
            word = "" if ratio.mean else ratio.text
            if low is not None and low > 1:
                word = "better"
            elif high is not None and high < 1:
                word = "worse"
            if ratio.text:
                interval = Interval(row, "", row, word, ratio.mean, low, high)
                ratios.setdefault(axis, []).append(interval)
    return {axis: rows for axis, rows in ratios.items() if _with_means(rows)}


def points(table: Table, cost: str) -> list[Point]:
    """The rows with a score and this cost, one of COSTS; none if all cost the same."""
    rows = [row for row in _scored(table) if _cost(row, cost)]
    drawn, costs, short = [], [], _names(rows)
    for row in rows:
        scores, value, label = row.scores[table.main.name], _cost(row, cost), row.label
        assert scores.mean is not None
        assert value is not None
        place = (label, short[label], row.row.group == "base")
        drawn.append(Point(*place, value, scores.mean, scores.std or 0.0, scores.is_log))
        costs.append(value)
    if not costs or max(costs) / min(costs) <= SAME_COST:
        return []
    return drawn


def equal_costs(table: Table) -> list[str]:
    """Names of the costs in which all rows with a score are equal, and need no figure."""
    scored, equal = _scored(table), []
    for cost, name in COSTS.items():
        is_known = len(scored) > 1 and all(_cost(row, cost) for row in scored)
        if is_known and not points(table, cost):
            equal.append(name)
    return equal


def _scored(table: Table) -> list[TableRow]:
    """The rows with a score in the main metric."""
    return [row for row in table.rows if row.scores[table.main.name].n]


def _cost(row: TableRow, cost: str) -> float | None:
    recipe = row.recipe
    costs = {
        "flops": recipe.cost.flops,
        "seconds": recipe.cost.seconds.mean,
        "params": recipe.params,
    }
    return costs[cost]


def _names(rows: Iterable[TableRow]) -> dict[str, str]:
    return names({row.label: row.row.group for row in rows})


def names(groups: Mapping[str, str]) -> dict[str, str]:
    """A name for each label, by its group: the label without the group where that is unique."""
    short = {label: label.removeprefix(f"{group} ") for label, group in groups.items()}
    counts = Counter(short.values())
    return {label: name if counts[name] == 1 else label for label, name in short.items()}
