"""The data of figures: learning curves by panel, differences from base, scores and costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest
from itertools import chain
from statistics import median
from typing import NamedTuple, TypeVar

from ablate.plotting import SERIES
from ablate.stats.metrics import Metric
from ablate.table.curves import Curve, speed_ups
from ablate.table.designs import DesignEffects
from ablate.table.experiment import Recipe
from ablate.table.scores import Scores
from ablate.table.table import Table, TableRow


class CostAxis(NamedTuple):
    """A cost of a row: its title, and its value; None if it is unknown."""

    title: str
    value: Callable[[Recipe], float | None]


COSTS = {
    "flops": CostAxis("training FLOPs", lambda recipe: recipe.cost.flops),
    "params": CostAxis("parameters", lambda recipe: recipe.params),
}
SAME_COST = 1.01  # costs are nearly equal up to this ratio of the largest to the smallest one
# Number of rows in a figure: with more, it is too long to read and the page too slow to use.
MAX_ROWS = 100
# A row is off the axis if its reach is more than OUTLIER_FACTOR times the median reach of the rows,
# and either its mean or its interval is far beyond the largest reach of the rows within this limit:
# the mean by more than OUTLIER_GAP times, or the interval by more than INTERVAL_GAP times.
OUTLIER_FACTOR = 5.0
OUTLIER_GAP = 2.0
INTERVAL_GAP = 10.0
# A panel has its own axis if a perplexity is larger than this factor times the median of the rows'
# largest perplexities.
OWN_AXIS_FACTOR = 10.0

T = TypeVar("T")


@dataclass(frozen=True)
class Panel:
    """Learning curves in the same axes: base, and at most as many rows as there are colors.

    title: name of the group, with a number if the group needs several panels.
    names: name of each curve in the legend.
    """

    title: str
    curves: tuple[Curve, ...]
    names: tuple[str, ...]

    @property
    def highest_of_rows(self) -> list[float]:
        """The largest perplexity of each row, without base."""
        return [curve.highest for curve in self.curves if not curve.is_base]

    @cached_property
    def cost_range(self) -> tuple[float, float]:
        """The smallest and the largest cost of any point."""
        costs = [cost for cost, _ in self._points]
        return min(costs), max(costs)

    @cached_property
    def perplexity_range(self) -> tuple[float, float]:
        """The smallest and the largest perplexity of any point."""
        perplexities = [perplexity for _, perplexity in self._points]
        return min(perplexities), max(perplexities)

    @property
    def _points(self) -> list[tuple[float, float]]:
        """(cost, perplexity) of each evaluation, and of the training items."""
        points: list[tuple[float, float]] = []
        for curve in self.curves:
            for run in curve.points.values():
                points += run
            if curve.training is not None:
                points += curve.training.mean
        return points

    def color(self, label: str) -> str:
        """The name of a row's color in the palette: `base`, or an element of SERIES."""
        rows = [curve.label for curve in self.curves if not curve.is_base]
        return SERIES[rows.index(label)] if label in rows else "base"


@dataclass(frozen=True)
class ForestRow:
    """A line of a forest plot: the difference of a row from base with its 95 % interval, an effect,
    or a speed-up.

    label, group: label and group of the row.
    name: name of the row in the figure.
    word: word of the verdict.
    mean: mean difference; None while the row or base has no score.
    interval: (low, high); None if it is unknown, as with a single seed.
    """

    label: str
    group: str
    name: str
    word: str
    mean: float | None
    interval: tuple[float, float] | None

    @property
    def ends(self) -> list[float]:
        """The mean and the ends of the interval, without missing ones."""
        mean = [] if self.mean is None else [self.mean]
        return [*mean, *(self.interval or ())]

    def reach(self, reference: float) -> float:
        """The largest distance from the reference to the mean or to an end of the interval; 0
        without a mean.
        """
        return max((abs(end - reference) for end in self.ends), default=0.0)


def rows_on_axis(rows: Sequence[ForestRow], reference: float = 0.0) -> list[ForestRow]:
    """The rows with a mean, except outliers, which do not determine the range of the axis.

    A row that learns nothing may differ from base a hundred times as much as the other rows, whose
    differences would then be invisible. With four rows or more, a row is an outlier if its reach is
    more than OUTLIER_FACTOR times the median reach, and its mean is more than OUTLIER_GAP times, or
    an end of its interval more than INTERVAL_GAP times, the largest reach within this limit.
    """
    drawn = [row for row in rows if row.mean is not None]
    if len(drawn) < 4:
        return drawn
    reaches = [row.reach(reference) for row in drawn]
    limit = OUTLIER_FACTOR * median(reaches)
    if not limit:
        return drawn
    within = max(reach for reach in reaches if reach <= limit)
    on_axis = []
    for row, reach in zip(drawn, reaches, strict=True):
        assert row.mean is not None
        is_near = abs(row.mean - reference) <= OUTLIER_GAP * within
        if reach <= limit or (is_near and reach <= INTERVAL_GAP * within):
            on_axis.append(row)
    return on_axis


def axis_range(rows: Sequence[ForestRow], reference: float = 0.0) -> tuple[float, float]:
    """The smallest and the largest value of an axis: it has the reference, and the means and
    intervals of the rows on the axis. On the side of an outlier, it has their largest reach.
    """
    on_axis = rows_on_axis(rows, reference)
    values = [reference]
    reach = 0.0
    for row in on_axis:
        values += row.ends
        reach = max(reach, row.reach(reference))
    for row in rows:
        if row.mean is not None and row not in on_axis:
            values.append(reference + math.copysign(reach, row.mean - reference))
    return min(values), max(values)


@dataclass(frozen=True)
class Point:
    """A numbered point: the score of a row over its cost, or an effect in a half-normal plot.

    label, name: label of the row or effect, and its name in the figure.
    std: standard deviation of y over seeds, of its logarithm if `is_log`; 0 with a single seed.
    is_emphasized: whether the point has the mark of base: base, or an effect with a verdict.
    """

    label: str
    name: str
    x: float
    y: float
    std: float = 0.0
    is_log: bool = False
    is_emphasized: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """One standard deviation below and above y."""
        if self.is_log:
            return self.y / math.exp(self.std), self.y * math.exp(self.std)
        return self.y - self.std, self.y + self.std


@dataclass(frozen=True)
class Line:
    """A curve of a row.

    label, name: label of the row, and its name in the legend.
    points: (x, scores over seeds), in the order of x.
    """

    label: str
    name: str
    points: tuple[tuple[float, Scores], ...]


def lines_over_test_sizes(table: Table) -> tuple[list[Line], str]:
    """The main score over the size of the test items, for trained models that several rows evaluate
    on test items of different sizes.

    Returns:
        The lines, and the name of the size.
    """
    rows_by_training: dict[tuple[str, ...], list[TableRow]] = {}
    for row in table.rows:
        rows_by_training.setdefault(tuple(run.id for run in row.runs), []).append(row)
    name = ""
    first_rows = []
    points = []
    for rows in rows_by_training.values():
        scores_by_size = {}
        for row in rows:
            scores = row.scores[table.main_metric.name]
            if row.recipe.test_size is not None and scores.n:
                name, size = row.recipe.test_size
                scores_by_size[size] = scores
        if len(scores_by_size) > 1:
            first_rows.append(rows[0])
            points.append(tuple(sorted(scores_by_size.items())))
    names = _names(first_rows)
    lines = []
    for row, row_points in zip(first_rows, points, strict=True):
        lines.append(Line(row.label, names[row.label], row_points))
    return lines, name


def panels(curves: Sequence[Curve]) -> list[Panel]:
    """A panel for each group; several panels of nearly equal size for a group with more rows than
    colors. Curves without an evaluation are left out.
    """
    bases = []
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        if curve.points and curve.is_base:
            bases.append(curve)
        elif curve.points:
            groups.setdefault(curve.group, []).append(curve)
    if not groups:
        return [_panel("base", bases)] if bases else []
    result = []
    for group, rows in groups.items():
        base_labels = {curve.base for curve in rows}
        group_bases = [curve for curve in bases if curve.label in base_labels]
        chunks = split(rows, len(SERIES))
        for number, chunk in enumerate(chunks, 1):
            title = group
            if len(chunks) > 1:
                title += f" ({number} of {len(chunks)})"
            result.append(_panel(title, [*group_bases, *chunk]))
    return result


def split(rows: Sequence[T], max_size: int) -> list[Sequence[T]]:
    """Split rows into as few chunks as possible, of nearly equal size."""
    n = math.ceil(len(rows) / max_size)
    return [rows[len(rows) * i // n : len(rows) * (i + 1) // n] for i in range(n)]


def shared_axis_panels(panels: Sequence[Panel]) -> list[Panel]:
    """The panels with a common vertical axis: all panels without a row of extreme perplexity.

    A row that learns nothing may have hundreds of times the perplexity of the other rows, whose
    curves would then be indistinguishable. With four rows or more, a perplexity above
    OWN_AXIS_FACTOR times the median of the rows' largest perplexities is extreme.
    """
    highest = list(chain.from_iterable(panel.highest_of_rows for panel in panels))
    if len(highest) < 4:
        return list(panels)
    limit = OWN_AXIS_FACTOR * median(highest)
    return [panel for panel in panels if max(panel.highest_of_rows, default=0.0) <= limit]


def _panel(title: str, curves: list[Curve]) -> Panel:
    short = short_names({curve.label: curve.group for curve in curves})
    return Panel(title, tuple(curves), tuple(short.values()))


def rows_in_figures(table: Table) -> set[str]:
    """The labels of the rows that figures show: all rows; in a study with more than MAX_ROWS rows
    beside the bases, the bases and the MAX_ROWS rows with the largest differences from base in the
    main metric.
    """
    distances = {}
    shown = set()
    for row in table.rows:
        verdict = row.verdicts.get(table.main_metric.name)
        if row.is_base:
            shown.add(row.label)
        elif verdict is None or verdict.mean is None:
            distances[row.label] = 0.0
        else:
            distances[row.label] = abs(verdict.mean)
    shown.update(nlargest(MAX_ROWS, distances, key=distances.__getitem__))
    return shown


def curves_in_figures(table: Table, curves: Iterable[Curve]) -> list[Curve]:
    """The curves of the rows in figures."""
    shown = rows_in_figures(table)
    return [curve for curve in curves if curve.label in shown]


def difference_rows(table: Table, metric: Metric) -> list[ForestRow]:
    """The difference from base of each row in figures; empty while no row has a difference."""
    shown = rows_in_figures(table)
    rows = [row for row in table.rows if metric.name in row.verdicts and row.label in shown]
    short = _names(rows)
    drawn = []
    for row in rows:
        verdict = row.verdicts[metric.name]
        name = short[row.label]
        drawn.append(
            ForestRow(row.label, row.group, name, verdict.word, verdict.mean, verdict.interval)
        )
    return drawn if _has_means(drawn) else []


def _has_means(rows: list[ForestRow]) -> bool:
    return any(row.mean is not None for row in rows)


def effect_rows(design: DesignEffects, metric: Metric) -> list[ForestRow]:
    """The effects of a design in a metric; empty while scores are missing."""
    drawn = []
    for name, effect in zip(design.names, design.by_metric.get(metric.name, ()), strict=False):
        word = effect.word(metric)
        drawn.append(ForestRow(name, "", name, word, effect.value, effect.interval))
    return drawn if _has_means(drawn) else []


def speed_up_rows(curves: Sequence[Curve]) -> dict[str, list[ForestRow]]:
    """The effective speed-up of each row, by axis of the cost; only axes with a speed-up."""
    forests: dict[str, list[ForestRow]] = {}
    for label, ratios in speed_ups(curves).items():
        for axis, ratio in ratios.items():
            if not ratio.text:
                continue
            word = "" if ratio.mean else ratio.text  # no verdict: the interval is not corrected
            row = ForestRow(label, "", label, word, ratio.mean, ratio.interval)
            forests.setdefault(axis, []).append(row)
    return {axis: rows for axis, rows in forests.items() if _has_means(rows)}


def cost_points(table: Table, cost: str) -> list[Point]:
    """The rows in figures with a score and a cost (a key of COSTS); empty if the costs of all rows
    are nearly equal (SAME_COST).
    """
    costs = {}
    for row in _scored(table):
        if value := COSTS[cost].value(row.recipe):
            costs[row.label] = value
    if not costs or max(costs.values()) / min(costs.values()) <= SAME_COST:
        return []
    shown = costs.keys() & rows_in_figures(table)
    rows = [row for row in table.rows if row.label in shown]
    names = _names(rows)
    points = []
    for row in rows:
        scores = row.scores[table.main_metric.name]
        assert scores.mean is not None
        point = Point(
            row.label,
            names[row.label],
            x=costs[row.label],
            y=scores.mean,
            std=scores.std or 0.0,
            is_log=scores.is_log,
            is_emphasized=row.is_base,
        )
        points.append(point)
    return points


def equal_costs(table: Table) -> list[str]:
    """Names of the costs that are nearly equal for all rows with a score, and need no figure."""
    scored = _scored(table)
    equal = []
    for name, cost in COSTS.items():
        is_known = len(scored) > 1 and all(cost.value(row.recipe) for row in scored)
        if is_known and not cost_points(table, name):
            equal.append(cost.title)
    return equal


def _scored(table: Table) -> list[TableRow]:
    """The rows with a score in the main metric."""
    return [row for row in table.rows if row.scores[table.main_metric.name].n]


def _names(rows: Iterable[TableRow]) -> dict[str, str]:
    return short_names({row.label: row.group for row in rows})


def short_names(group_by_label: Mapping[str, str]) -> dict[str, str]:
    """A short name for each label: the label without its group, if this name is unique."""
    short = {}
    for label, group in group_by_label.items():
        short[label] = label.removeprefix(f"{group} ")
    counts = Counter(short.values())
    return {label: name if counts[name] == 1 else label for label, name in short.items()}
