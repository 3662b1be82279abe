"""The report's figures: learning curves, differences from base, score against cost, effects of
designs, and sizes.

One drawing serves the page, as inline SVG, and a paper, as PDF, PNG and SVG files. Sizes are in
inches. A row's marks carry the id `row:LABEL`, by which the page hides and highlights them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ablate.analysis.curves import AXES, Curve
from ablate.analysis.designs import DesignEffects, design_effects, metrics_of
from ablate.analysis.ladder import Ladder, RowOverSizes, ladders
from ablate.analysis.table import Table
from ablate.config.metrics import PPL, Metric
from ablate.formatting import signed
from ablate.page.labels import Box, is_far, place
from ablate.page.points import (
    COSTS,
    Interval,
    Panel,
    Point,
    alike,
    contrasts,
    intervals,
    panels,
    points,
    ratios_by_axis,
    within_axis,
)
from ablate.plotting import (
    COLUMN,
    FORMATS,
    LEADING,
    PALETTE,
    SERIES,
    SMALL,
    Sheet,
    is_spread,
    render,
    set_range,
    style,
    text_width,
    wrap,
)

EDGE = 0.06  # around a figure
BELOW = 0.4  # ticks and title of a horizontal axis
BESIDE = 0.5  # ticks and title of a vertical axis
MARKERS = {"worse": "v", "better": "^"}
PAPER_WIDTH = 7.0  # of a figure over both columns of a paper
ACROSS = 3  # panels side by side
BOLD = 0.85  # of the width that text may take, since bold text is wider than it is measured
TITLE_HEIGHT, PANEL_HEIGHT, POINTS_HEIGHT = 0.2, 1.7, 2.2
SIZES_KEY = LEADING + 0.02  # of a line below a figure of sizes
LEAST_EFFECTS = 7  # of a half-normal plot: those of 8 cells


def figure_files(
    table: Table, curves: Sequence[Curve], kinds: Sequence[str] = FORMATS
) -> dict[str, bytes]:
    """Every figure that has data, in each of the formats, by file name.

    The same results give the same bytes.
    """
    files = {}
    for name, draw in _figures(table, curves).items():
        figure = draw()
        for kind in kinds:
            files[f"{name}.{kind}"] = render(figure, kind)
    return files


def _figures(table: Table, curves: Sequence[Curve]) -> dict[str, Callable[[], Figure]]:
    found: dict[str, Callable[[], Figure]] = {}
    for metric in (table.main, table.perplexity):
        rows = intervals(table, metric)
        if any(row.mean is not None for row in rows):
            found[f"against-base-{metric.name}"] = partial(draw_intervals, rows, metric)
    groups = panels(curves)
    if groups:
        found["learning-curves"] = partial(draw_curves, groups)
    for axis in list(AXES)[1:]:
        along = panels([curve.by(axis) for curve in curves])
        if along:
            found[f"learning-curves-{axis}"] = partial(draw_curves, along)
    for cost, title in COSTS.items():
        rows_with_cost = points(table, cost)
        if rows_with_cost:
            found[f"cost-{cost}"] = partial(draw_points, rows_with_cost, table.main, title)
    return {**found, **_figures_of_designs(table, curves)}


def _file_names(designs: Iterable[DesignEffects]) -> Iterator[tuple[DesignEffects, str]]:
    """Yield each design with a part of a file name that no other has: `opt.a` and `opt a` are
    `opt-a` and `opt-a-2`.
    """
    used: set[str] = set()
    for design in designs:
        name = slug = re.sub(r"[^a-z0-9]+", "-", design.group.lower()).strip("-")
        number = 1
        while name in used:
            number += 1
            name = f"{slug}-{number}"
        used.add(name)
        yield design, name


def _figures_of_designs(table: Table, curves: Sequence[Curve]) -> dict[str, Callable[[], Figure]]:
    """Effects of factorials and paths, differences over sizes, and effective speed-ups."""
    found: dict[str, Callable[[], Figure]] = {}
    for design, name in _file_names(design_effects(table)):
        for metric in metrics_of(table):
            effects = contrasts(design, metric)
            if any(one.mean is not None for one in effects):
                found[f"effects-{name}-{metric.name}"] = partial(
                    draw_intervals, effects, metric, effect_label(metric)
                )
            if design.is_factorial and len(effects) >= LEAST_EFFECTS:
                found[f"half-normal-{name}-{metric.name}"] = partial(
                    draw_half_normal, effects, metric
                )
    for ladder in ladders(table):
        if ladder.has_differences:
            found[f"sizes-{ladder.metric.name}"] = partial(draw_sizes, ladder)
    for axis, ratios in ratios_by_axis(curves).items():
        found[f"speed-up-{axis}"] = partial(draw_ratios, ratios, AXES[axis])
    return found


def effect_label(metric: Metric) -> str:
    """The label of an axis of effects."""
    return f"effect on {metric.title} ({metric.side})"


def draw_intervals(rows: Sequence[Interval], metric: Metric, label: str = "") -> Figure:
    """Draw one line per row: the mean difference from base, and its 95 % interval over seeds.

    A row that is off the axis has its difference in numbers, at the end of the axis.

    `label`: of the axis, for other differences.
    """
    label = label or f"difference from base in {metric.title} ({metric.side})"
    with style():
        return _forest(rows, label, lambda mean: signed(mean, metric.digits))


def draw_ratios(rows: Sequence[Interval], cost: str) -> Figure:
    """Draw one line per row: its effective speed-up in a cost, with its interval; 1 is base."""
    with style():
        return _forest(rows, f"effective speed-up in {cost}", "{:.2f}".format, reference=1.0)


def _forest(
    rows: Sequence[Interval], label: str, written: Callable[[float], str], reference: float = 0.0
) -> Figure:
    names = [wrap(row.name, SMALL, 0.46 * COLUMN) for row in rows]
    heights = [0.06 + LEADING * len(lines) for lines in names]
    left = EDGE + max(text_width(line, SMALL) for lines in names for line in lines) + 0.1
    width = COLUMN - left - 2 * EDGE
    sheet = Sheet(COLUMN, EDGE + sum(heights) + BELOW)
    axes = sheet.axes(left, EDGE, width, sum(heights))
    ends = _ends(rows, reference)
    # With the line of no difference, so that it is always in the figure.
    set_range(axes.xaxis, [reference, *ends], log=False, ticks=4)
    axes.set(ylim=(sum(heights), 0), yticks=[], xlabel=label)
    axes.grid(axis="x")
    # The grid under the marks, which are thin.
    axes.set_axisbelow(True)
    axes.spines.left.set_visible(False)
    axes.axvline(reference, color=PALETTE["soft"], linewidth=0.8, zorder=1)
    beside = axes.get_yaxis_transform()  # x as a share of the axes, y as data
    y = 0.0
    for index, (row, lines, height) in enumerate(zip(rows, names, heights, strict=True)):
        if (
            index and row.group != rows[index - 1].group
        ):  # a rule between groups, as in the paper's Table 3
            rule = Line2D(((EDGE - left) / width, 1), (y, y), color=PALETTE["line"], linewidth=0.5)
            rule.set(transform=beside, clip_on=False, zorder=0.5)
            axes.add_line(rule)
        _interval(axes, row, y + height / 2, reference, written)
        name = axes.text(
            -0.1 / width,
            y + height / 2,
            "\n".join(lines),
            size=SMALL,
            ha="right",
            va="center_baseline",
        )
        name.set(transform=beside, linespacing=1.1, multialignment="right", gid=_id(row.row))
        y += height
    return sheet.finished()


def _ends(rows: Sequence[Interval], reference: float) -> list[float]:
    """The values that an axis holds: those of the rows within it, and as much room where a row is
    off it.
    """
    within = within_axis(rows, reference)
    ends = [value for row in within for value in (row.mean, row.low, row.high) if value is not None]
    reach = max((row.reach(reference) for row in within), default=0.0)
    off = [row.mean for row in rows if row.mean is not None and row not in within]
    return [*ends, *(reference + math.copysign(reach, mean - reference) for mean in off)]


def _interval(
    axes: Axes, row: Interval, y: float, reference: float, written: Callable[[float], str]
) -> None:
    if row.mean is None:
        text = axes.annotate(
            row.word or "no result yet",
            (reference, y),
            (3, 0),
            textcoords="offset points",
            size=SMALL,
        )
        text.set(color=PALETTE["soft"], va="center_baseline", gid=_id(row.row), bbox=_PAPER)
        return
    color = PALETTE[row.word if row.word in MARKERS else "base"]
    fill = color if row.word in MARKERS else PALETTE["paper"]
    low, high = axes.get_xlim()
    at = min(max(row.mean, low), high)
    if row.low is not None and row.high is not None:
        ends = (min(max(end, low), high) for end in (row.low, row.high))
        axes.plot(tuple(ends), (y, y), color=color, linewidth=1.3, gid=_id(row.row))
    mark = axes.plot(
        (at,), (y,), MARKERS.get(row.word, "o"), color=color, markerfacecolor=fill, markersize=4.5
    )
    mark[0].set(gid=_id(row.row), clip_on=at == row.mean)
    if at != row.mean:
        _beside_edge(axes, row, (at, y), written(row.mean), color, leftmost=at == low)


def _beside_edge(
    axes: Axes, row: Interval, at: tuple[float, float], mean: str, color: str, *, leftmost: bool
) -> None:
    """Write the difference of a row that is off the axis, with an arrow towards it."""
    told = f"\N{LEFTWARDS ARROW} {mean}" if leftmost else f"{mean} \N{RIGHTWARDS ARROW}"
    text = axes.annotate(
        told, at, (5 if leftmost else -5, 0), textcoords="offset points", size=SMALL
    )
    text.set(
        color=color,
        ha="left" if leftmost else "right",
        va="center_baseline",
        gid=_id(row.row),
        bbox=_PAPER,
    )


def draw_curves(groups: Sequence[Panel], *, of: Sequence[Panel] = ()) -> Figure:
    """Draw panels of learning curves: every run as a thin line, and the mean of each row as a thick
    one.

    Args:
        groups: the panels of this figure.
        of: all panels that are compared; by default those of this figure. They have the same axes,
            but for a panel with a row far above the others.
    """
    with style():
        return _curves(groups, of or groups)


def _curves(groups: Sequence[Panel], of: Sequence[Panel]) -> Figure:
    across = min(ACROSS, len(groups))
    width = (COLUMN if across == 1 else PAPER_WIDTH) / across
    legends = [_Legend(panel, width - 2 * EDGE) for panel in groups]
    rows = [legends[first : first + across] for first in range(0, len(legends), across)]
    titles = [wrap(_title(panel, of), SMALL, BOLD * (width - 2 * EDGE)) for panel in groups]
    above = TITLE_HEIGHT + LEADING * (max(map(len, titles)) - 1) if len(groups) > 1 else 0.0
    heights = [above + PANEL_HEIGHT + BELOW + max(legend.height for legend in row) for row in rows]
    sheet = Sheet(width * across, sum(heights) + EDGE)
    y = EDGE
    for row, height in zip(rows, heights, strict=True):
        for column, legend in enumerate(row):
            _panel(sheet, column * width, y, width, above, legend, of)
        y += height
    return sheet.finished()


def _title(panel: Panel, of: Sequence[Panel]) -> str:
    return panel.title if panel in alike(of) else f"{panel.title} (own scale)"


def _panel(
    sheet: Sheet,
    x: float,
    y: float,
    width: float,
    above: float,
    legend: _Legend,
    of: Sequence[Panel],
) -> None:
    """Draw one panel with its legend below, and its title above if there is space for it."""
    panel = legend.panel
    if above:
        title = "\n".join(wrap(_title(panel, of), SMALL, BOLD * (width - 2 * EDGE)))
        sheet.text(x + EDGE, y, title, SMALL, weight="bold", linespacing=1.1)
    axes = sheet.axes(x + BESIDE, y + above, width - BESIDE - 2 * EDGE, PANEL_HEIGHT)
    # Over all panels: curves of different panels are compared by eye.
    near = alike(of)
    shared = near if panel in near else [panel]
    values = [
        value
        for one in shared
        for curve in one.curves
        for run in curve.points.values()
        for _, value in run
    ]
    costs = [
        cost
        for one in of
        for curve in one.curves
        for run in curve.points.values()
        for cost, _ in run
    ]
    set_range(axes.yaxis, values, log=is_spread(values))
    set_range(axes.xaxis, [0, *costs], log=False, margin=0.03, ticks=4)
    axes.grid(axis="y")
    axes.set(xlabel=AXES[panel.curves[0].axis], ylabel=f"{PPL.title} ({PPL.side})")
    for curve in panel.curves:
        name = panel.color(curve.row)
        look: dict[str, Any] = {
            "color": PALETTE[name],
            "gid": _id(curve.row),
            "zorder": 3 if name == "base" else 2,
        }
        for run in curve.points.values():
            axes.plot(*zip(*run, strict=True), linewidth=0.5, alpha=0.5, **look)
        if curve.mean:
            dashes = "--" if name == "base" else "-"
            # A single evaluation makes no line.
            marker = "o" if len(curve.mean) == 1 else None
            axes.plot(
                *zip(*curve.mean, strict=True),
                dashes,
                linewidth=1.4,
                marker=marker,
                markersize=3,
                **look,
            )
    legend.draw(sheet, x + EDGE, y + above + PANEL_HEIGHT + BELOW)


class _Legend:
    """The names of a panel's curves in as many columns as fit."""

    HANDLE = 0.28  # the line before a name, with the gap after it

    def __init__(self, panel: Panel, width: float) -> None:
        self.panel = panel
        widest = max(text_width(name, SMALL) for name in panel.names)
        count = max(1, int(width / (widest + self.HANDLE + 0.1)))
        self.columns = min(count, len(panel.names))
        self.column = width / self.columns
        self.names = [wrap(name, SMALL, self.column - self.HANDLE) for name in panel.names]
        self.rows = [
            self.names[i : i + self.columns] for i in range(0, len(self.names), self.columns)
        ]
        self.heights = [LEADING * max(map(len, row)) + 0.02 for row in self.rows]

    @property
    def height(self) -> float:
        return sum(self.heights) + 0.1

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        """Draw the legend with its top left corner at (x, y)."""
        for number, (curve, lines) in enumerate(zip(self.panel.curves, self.names, strict=True)):
            row, column = divmod(number, self.columns)
            top, left = y + sum(self.heights[:row]), x + column * self.column
            name = self.panel.color(curve.row)
            middle = 1 - (top + LEADING / 2) / sheet.height
            line = Line2D((left / sheet.width, (left + 0.2) / sheet.width), (middle, middle))
            line.set(color=PALETTE[name], linewidth=1.6, linestyle="--" if name == "base" else "-")
            line.set_gid(_id(curve.row))
            sheet.figure.add_artist(line)
            text = sheet.text(left + self.HANDLE, top, "\n".join(lines), SMALL, linespacing=1.1)
            text.set_gid(_id(curve.row))


def draw_sizes(ladder: Ladder) -> Figure:
    """Draw the difference from base of each row over the parameters of base, which are on a
    logarithmic axis.

    Thin lines are seeds, thick ones means. Rows are in parts of one for each color.
    """
    parts = [
        ladder.rows[first : first + len(SERIES)]
        for first in range(0, len(ladder.rows), len(SERIES))
    ]
    with style():
        keys = [sum(SIZES_KEY * len(_size_key(row)) for row in part) + 0.1 for part in parts]
        heights = [EDGE + PANEL_HEIGHT + BELOW + key for key in keys]
        sheet = Sheet(COLUMN, sum(heights))
        for number, part in enumerate(parts):
            _sizes(sheet, sum(heights[:number]) + EDGE, part, ladder)
        return sheet.finished()


def _sizes(sheet: Sheet, y: float, rows: Sequence[RowOverSizes], ladder: Ladder) -> None:
    axes = sheet.axes(BESIDE, y, COLUMN - BESIDE - 2 * EDGE, PANEL_HEIGHT)
    params = list(ladder.sizes.values())
    values = [
        value
        for row in ladder.rows
        for rung in row.rungs
        for value in rung.difference.by_seed.values()
    ]
    set_range(axes.yaxis, [0.0, *values], log=False)
    set_range(axes.xaxis, params, log=True, margin=0.08, ticks=4)
    axes.axhline(0, color=PALETTE["soft"], linewidth=0.8, zorder=1)
    axes.grid(axis="y")
    axes.set(xlabel="parameters of base", ylabel=f"Δ{ladder.metric.title} ({ladder.metric.side})")
    top = y + PANEL_HEIGHT + BELOW
    for number, row in enumerate(rows):
        look: dict[str, Any] = {"color": PALETTE[SERIES[number]], "gid": _id(row.name), "zorder": 2}
        for seed in sorted({seed for rung in row.rungs for seed in rung.difference.by_seed}):
            line = [
                (p, rung.difference.by_seed.get(seed, math.nan))
                for p, rung in zip(params, row.rungs, strict=True)
            ]
            axes.plot(*zip(*line, strict=True), linewidth=0.5, alpha=0.5, **look)
        means = [
            math.nan if rung.difference.mean is None else rung.difference.mean for rung in row.rungs
        ]
        axes.plot(params, means, "-o", linewidth=1.4, markersize=3, **look)
        middle = 1 - (top + LEADING / 2) / sheet.height
        key = Line2D((BESIDE / sheet.width, (BESIDE + 0.2) / sheet.width), (middle, middle))
        key.set(color=PALETTE[SERIES[number]], linewidth=1.6)
        key.set_gid(_id(row.name))
        sheet.figure.add_artist(key)
        name = _size_key(row)
        sheet.text(BESIDE + 0.28, top, "\n".join(name), SMALL, linespacing=1.1).set_gid(
            _id(row.name)
        )
        top += SIZES_KEY * len(name)


def _size_key(row: RowOverSizes) -> list[str]:
    """The lines of a row's name below a figure of sizes."""
    return wrap(row.name, SMALL, COLUMN - BESIDE - 0.4)


def draw_half_normal(effects: Sequence[Interval], metric: Metric) -> Figure:
    """Draw a half-normal plot: sizes of effects over the quantiles that pure noise would have.

    Effects that are only noise are on a line through 0; real ones are above its end.

    Source: Daniel, "Use of Half-Normal Plots in Interpreting Factorial Two-Level Experiments",
        Technometrics (1959).
    """
    known = sorted(
        ((abs(one.mean), one) for one in effects if one.mean is not None), key=lambda pair: pair[0]
    )
    quantiles = [
        NormalDist().inv_cdf(0.5 + (place + 0.5) / len(known) / 2) for place in range(len(known))
    ]
    rows = [
        Point(one.row, one.name, one.word in MARKERS, quantile, size, 0.0)
        for quantile, (size, one) in zip(quantiles, known, strict=True)
    ]
    labels = _Labels("half-normal quantile", f"size of the effect on {metric.title}", log=False)
    with style():
        return _named_points(rows, labels) or _numbered_points(rows, labels)


@dataclass(frozen=True)
class _Labels:
    """Labels of the axes of points, and whether the horizontal one is logarithmic."""

    x: str
    y: str
    log: bool


def draw_points(rows: Sequence[Point], metric: Metric, cost: str) -> Figure:
    """Draw one point per row: its cost to the right, its score upwards, with the standard deviation
    over seeds.

    Names are beside the points where all of them fit; otherwise points are numbered, and the names
    are below.
    """
    labels = _Labels(cost, f"{metric.title} ({metric.side})", is_spread([row.cost for row in rows]))
    with style():
        return _named_points(rows, labels) or _numbered_points(rows, labels)


def _named_points(rows: Sequence[Point], labels: _Labels) -> Figure | None:
    sheet = Sheet(COLUMN, EDGE + POINTS_HEIGHT + BELOW)
    axes = _points(sheet, rows, labels, POINTS_HEIGHT)
    return sheet.finished() if _name(axes, rows, [row.name for row in rows], near=True) else None


def _numbered_points(rows: Sequence[Point], labels: _Labels) -> Figure:
    names = [f"{number}  {row.name}" for number, row in enumerate(rows, 1)]
    columns = 2 if max(text_width(name, SMALL) for name in names) < COLUMN / 2 - 2 * EDGE else 1
    lines = [wrap(name, SMALL, (COLUMN - 2 * EDGE) / columns - 0.05) for name in names]
    long = -(-len(lines) // columns)
    parts = [lines[first : first + long] for first in range(0, len(lines), long)]
    key = LEADING * max(sum(map(len, part)) for part in parts) + 0.1
    height = POINTS_HEIGHT + 0.03 * len(rows)
    sheet = Sheet(COLUMN, EDGE + height + BELOW + key)
    axes = _points(sheet, rows, labels, height)
    _name(axes, rows, [str(number) for number in range(1, len(rows) + 1)], near=False)
    numbered = iter(rows)
    for column, part in enumerate(parts):
        y = EDGE + height + BELOW + 0.04
        for name in part:
            text = sheet.text(
                EDGE + column * COLUMN / 2, y, "\n".join(name), SMALL, linespacing=1.1
            )
            text.set_gid(_id(next(numbered).row))
            y += LEADING * len(name)
    return sheet.finished()


def _points(sheet: Sheet, rows: Sequence[Point], labels: _Labels, height: float) -> Axes:
    axes = sheet.axes(BESIDE, EDGE, COLUMN - BESIDE - 2 * EDGE, height)
    costs = [row.cost for row in rows]
    set_range(axes.xaxis, costs, log=labels.log, margin=0.12, ticks=4)
    ends = [end for row in rows for end in (row.score - row.std, row.score + row.std)]
    set_range(axes.yaxis, ends, log=False, margin=0.08)
    axes.set(xlabel=labels.x, ylabel=labels.y)
    for row in rows:
        name = "base" if row.is_base else "c0"
        marker, size = ("D", 4.5) if row.is_base else ("o", 4.0)
        look: dict[str, Any] = {
            "color": PALETTE[name],
            "gid": _id(row.row),
            "zorder": 3 if row.is_base else 2,
        }
        if row.std:
            axes.plot(
                (row.cost, row.cost),
                (row.score - row.std, row.score + row.std),
                linewidth=0.9,
                **look,
            )
        axes.plot((row.cost,), (row.score,), marker, markersize=size, **look)
    return axes


def _name(axes: Axes, rows: Sequence[Point], names: Sequence[str], *, near: bool) -> bool:
    """Write names beside the points, with a thin line to a point that is further away; return
    whether all fit.
    """
    # Pixels to typographic points, the unit of text sizes.
    scale = 72 / axes.figure.dpi
    middles = axes.transData.transform([(row.cost, row.score) for row in rows]) * scale
    bars = axes.transData.transform([(row.cost, row.score + row.std) for row in rows]) * scale
    obstacles = [Box(x - 3, y - 3, x + 3, y + 3) for x, y in middles]
    obstacles += [
        Box(x - 1, 2 * y - top, x + 1, top) for (x, y), (_, top) in zip(middles, bars, strict=True)
    ]
    size = 6.5
    sizes = [(72 * text_width(name, size) + 1, size + 1) for name in names]
    box = axes.get_window_extent()
    bounds = Box(*(scale * end for end in (box.x0, box.y0, box.x1, box.y1)))
    boxes = place([(x, y) for x, y in middles], sizes, obstacles, bounds, near=near)
    if any(box is None for box in boxes):
        return False
    for row, name, (x, y), found in zip(rows, names, middles, boxes, strict=True):
        if found is None:
            continue
        right = found.left > x
        end = found.left if right else found.right
        # Relative to the point and in typographic points, so that the name stays beside it at any
        # size of the figure.
        offset = (end - x, (found.bottom + found.top) / 2 - y)
        text = axes.annotate(
            name,
            (row.cost, row.score),
            offset,
            textcoords="offset points",
            size=size,
            ha="left" if right else "right",
            va="center_baseline",
            annotation_clip=False,
            gid=_id(row.row),
            arrowprops=_LEADER if is_far(x, y, found) else None,
        )
        if text.arrow_patch:
            text.arrow_patch.set_gid(_id(row.row))
    return True


_PAPER = {
    "facecolor": PALETTE["paper"],
    "edgecolor": "none",
    "pad": 0.5,
}  # hides grid lines behind a text
_LEADER = {
    "arrowstyle": "-",
    "linewidth": 0.4,
    "color": PALETTE["soft"],
    "shrinkA": 0,
    "shrinkB": 2.5,
}


def _id(row: str) -> str:
    return f"row:{row}"
