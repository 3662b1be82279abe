"""Draw the figures of the report: learning curves, differences from base, scores over costs,
effects of designs, and sizes.

The same drawing is inline SVG on the page, and a PDF, PNG or SVG file for a paper. Sizes are in
inches; constrained layout places axes, labels and legends. The marks of a row have the id
`row:LABEL`, with which the page hides and highlights them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, product
from operator import itemgetter
from statistics import NormalDist
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.markers import CARETLEFTBASE, CARETRIGHTBASE
from matplotlib.transforms import Bbox, ScaledTranslation

from ablate.formatting import fold, printable
from ablate.page.points import ForestRow, Line, Panel, Point, axis_range, shared_axis_panels, split
from ablate.plotting import (
    COLUMN,
    PALETTE,
    SERIES,
    SMALL,
    is_spread,
    label_ratios,
    new_figure,
    set_range,
    style,
)
from ablate.stats.metrics import PPL, Metric
from ablate.table.curves import AXES, Curve
from ablate.table.ladder import Ladder

X_AXIS_HEIGHT = 0.4  # height of the ticks and the title
Y_AXIS_WIDTH = 0.45
LINE_HEIGHT = 0.125  # height of a line of small text
ROW_GAP = 0.6  # space between the rows of a forest plot, in lines of text
# Number of characters in a line of a name.
NAME_CHARACTERS = 26  # left of the axes
KEY_CHARACTERS = 36  # in the legend of a panel
LINE_CHARACTERS = 56  # below a figure
MARKERS = {"worse": "v", "better": "^"}
PAPER_WIDTH = 7.0  # width of a figure over both columns of a paper
MAX_COLUMNS = 3  # panels side by side
TITLE_HEIGHT = 0.2
PANEL_HEIGHT = 1.7
POINTS_HEIGHT = 2.2
MIN_EFFECTS = 7  # for a half-normal plot; a factorial of 8 cells has 7 effects
# In typographic points:
EDGE_DISTANCE = 3.0  # from the end of an axis to the mark of a row off the axis
DIGIT_WIDTH = 4.5
HALF_NUMBER_HEIGHT = 3.5
LEADER = {"arrowstyle": "-", "linewidth": 0.4, "color": PALETTE["soft"], "shrinkA": 0, "shrinkB": 2}


def effect_label(metric: Metric) -> str:
    """The label of an axis of effects."""
    return f"effect on {metric.full_title}"


@style()
def draw_intervals(rows: Sequence[ForestRow], metric: Metric, label: str = "") -> Figure:
    """Draw a line for each row: the mean difference from base, and its 95 % interval over seeds.

    Differences of logarithms are labelled as ratios. The difference of a row off the axis is
    written at the end of the axis; an interval that goes on beyond the axis ends in an arrowhead.
    """
    kind = "ratio to base" if metric.is_log else "difference from base"
    label = label or f"{kind} in {metric.full_title}"
    figure = _forest(rows, label, metric.difference_text)
    if metric.is_log:
        label_ratios(figure.axes[0].xaxis)
    return figure


@style()
def draw_speed_ups(rows: Sequence[ForestRow], cost: str) -> Figure:
    """Draw a line for each row: its effective speed-up in a cost, with its interval; base is 1."""
    return _forest(rows, f"effective speed-up in {cost}", "{:.2f}".format, reference=1.0)


def _forest(
    rows: Sequence[ForestRow],
    label: str,
    format_mean: Callable[[float], str],
    reference: float = 0.0,
) -> Figure:
    """A forest plot.

    Args:
        rows: the rows, from top to bottom.
        label: label of the axis.
        format_mean: gives the text of a mean.
        reference: the value of no difference.
    """
    names = []
    middles = []
    ends = [0.0]  # the vertical axis counts lines of text
    for row in rows:
        name = _folded(row.name, NAME_CHARACTERS)
        height = ROW_GAP + len(name.split("\n"))
        names.append(name)
        ends.append(ends[-1] + height)
        middles.append(ends[-1] - height / 2)
    figure, (axes,) = new_figure(COLUMN, LINE_HEIGHT * ends[-1] + X_AXIS_HEIGHT)
    axes.set_yticks(middles, names)
    axes.tick_params("y", length=0, labelcolor=PALETTE["ink"])
    axes.set(ylim=(ends[-1], 0), xlabel=label)
    limits = axis_range(rows, reference)
    set_range(axes.xaxis, limits, log=False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)  # the grid is behind the marks, which are thin
    axes.spines.left.set_visible(False)
    axes.axvline(reference, color=PALETTE["soft"], linewidth=0.8, zorder=1)
    for previous, row, y in zip(rows, rows[1:], ends[1:], strict=False):
        if row.group != previous.group:  # a rule between groups, as in the paper's Table 3
            axes.axhline(y, color=PALETTE["line"], linewidth=0.5, zorder=0.5)
    for row, y, tick_label in zip(rows, middles, axes.get_yticklabels(), strict=True):
        tick_label.set_gid(_gid(row.label))
        _draw_interval(axes, row, y, limits, format_mean)
    return figure


def _draw_interval(
    axes: Axes,
    row: ForestRow,
    y: float,
    limits: tuple[float, float],
    format_mean: Callable[[float], str],
) -> None:
    """Draw a row at the height y. A mean outside of `limits` is drawn at the end of the axis."""
    low, high = axes.get_xlim()  # the limits and a margin
    if row.mean is None:
        # At the left end, because there may be no space at the line of no difference.
        _note(axes, row, (low, y), row.word or "no result yet", PALETTE["soft"])
        return
    color = PALETTE["base"]
    fill = PALETTE["paper"]
    if row.word in MARKERS:
        color = fill = PALETTE[row.word]
    marks: dict[str, Any] = {"color": color, "gid": _gid(row.label)}
    if row.interval:
        axes.plot(np.clip(row.interval, low, high), (y, y), linewidth=1.3, **marks)
        if row.interval[0] < low < row.mean:
            axes.plot((low,), (y,), marker=CARETLEFTBASE, markersize=4, **marks)
        if row.mean < high < row.interval[1]:
            axes.plot((high,), (y,), marker=CARETRIGHTBASE, markersize=4, **marks)
    marks |= {"markerfacecolor": fill, "markersize": 4.5}
    marker = MARKERS.get(row.word, "o")
    if limits[0] <= row.mean <= limits[1]:
        axes.plot((row.mean,), (y,), marker, **marks)
        return
    # The difference of a row off the axis is written, with an arrow towards it.
    text = format_mean(row.mean)
    is_left = row.mean < limits[0]
    x = low if is_left else high
    inset = EDGE_DISTANCE if is_left else -EDGE_DISTANCE
    note = f"\N{LEFTWARDS ARROW} {text}" if is_left else f"{text} \N{RIGHTWARDS ARROW}"
    inside = axes.transData + ScaledTranslation(inset / 72, 0, axes.figure.dpi_scale_trans)
    axes.plot((x,), (y,), marker, transform=inside, **marks)
    side = "left" if is_left else "right"
    _note(axes, row, (x, y), note, color, side=side, distance=5 + EDGE_DISTANCE)


def _note(
    axes: Axes,
    row: ForestRow,
    point: tuple[float, float],
    text: str,
    color: str,
    side: str = "left",
    distance: float = 5,
) -> None:
    """Write text next to a point, over the grid.

    Args:
        axes: axes of the point.
        row: the row of the text.
        point: the point, in data coordinates.
        text: the text.
        color: its color.
        side: the end of the text at the point, `left` or `right`.
        distance: distance from the point, in typographic points.
    """
    offset = (distance if side == "left" else -distance, 0)
    note = axes.annotate(text, point, offset, textcoords="offset points", size=SMALL, color=color)
    background = {"facecolor": PALETTE["paper"], "edgecolor": "none", "pad": 0.5}
    note.set(ha=side, va="center_baseline", gid=_gid(row.label), bbox=background, in_layout=False)


@style()
def draw_curves(panels: Sequence[Panel], *, compared: Sequence[Panel] = ()) -> Figure:
    """Draw panels of learning curves: runs as thin lines, means of rows as thick lines.

    Args:
        panels: the panels of this figure.
        compared: all panels that readers compare, by default the panels of this figure. They have
            the same scales, except panels with a row of extreme perplexity.
    """
    compared = compared or panels
    shared = shared_axis_panels(compared)
    n_columns = min(MAX_COLUMNS, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    width = PAPER_WIDTH / MAX_COLUMNS if n_columns > 1 else COLUMN
    # Constrained layout takes the space of titles and legends from the axes. With the height that
    # they need, the axes keep theirs.
    height = n_rows * (PANEL_HEIGHT + X_AXIS_HEIGHT)
    lines = [_count_lines(panel.names) for panel in panels]
    for start in range(0, len(lines), n_columns):
        height += LINE_HEIGHT * max(lines[start : start + n_columns])
    if len(panels) > 1:
        height += n_rows * TITLE_HEIGHT
    costs = list(chain.from_iterable(panel.cost_range for panel in compared))
    figure, all_axes = new_figure(width * n_columns, height, n_rows, n_columns)
    for axes in all_axes[len(panels) :]:
        axes.remove()
    for panel, axes in zip(panels, all_axes, strict=False):
        same_scale = shared
        title = panel.title
        if panel not in shared:
            same_scale = [panel]
            title = f"{panel.title} (own scale)"
        if len(panels) > 1:
            text = _folded(title, KEY_CHARACTERS)
            axes.set_title(text, size=SMALL, weight="bold", loc="left")
        perplexities = list(chain.from_iterable(other.perplexity_range for other in same_scale))
        set_range(axes.yaxis, perplexities, log=PPL.is_log)
        set_range(axes.xaxis, [0, *costs], log=False, amounts=True)
        axes.grid(axis="y")
        side = PPL.side
        if any(curve.training for curve in panel.curves):
            side += "; dotted: training"
        axes.set(xlabel=AXES[panel.curves[0].axis], ylabel=f"{PPL.title} ({side})")
        for curve, name in zip(panel.curves, panel.names, strict=True):
            _draw_curve(axes, curve, panel.color(curve.label), name)
        _legend_below(figure, axes, panel.curves)
    return figure


def _draw_curve(axes: Axes, curve: Curve, color: str, name: str) -> None:
    is_base = color == "base"
    line = "--" if is_base else "-"
    zorder = 3 if is_base else 2
    marks: dict[str, Any] = {"color": PALETTE[color], "gid": _gid(curve.label), "zorder": zorder}
    # One artist for all runs: a study may have thousands.
    runs = LineCollection(list(curve.points.values()), linewidth=0.5, alpha=0.5, **marks)
    axes.add_collection(runs, autolim=False)
    # A single evaluation is a point, because it makes no line.
    marks |= {"marker": "o" if len(curve.mean) == 1 else None, "markersize": 3}
    label = _folded(name, KEY_CHARACTERS)
    # Reshaped, because the mean may have no points.
    axes.plot(*np.reshape(curve.mean, (-1, 2)).T, line, label=label, linewidth=1.4, **marks)
    if curve.training is not None:
        axes.plot(*zip(*curve.training.mean, strict=True), ":", linewidth=1.0, **marks)


def _folded(name: str, width: int) -> str:
    """A name in lines of at most `width` characters."""
    return "\n".join(fold(printable(name), width))


def _count_lines(names: Iterable[str]) -> int:
    """Number of lines of a legend with these names."""
    return sum(_folded(name, KEY_CHARACTERS).count("\n") + 1 for name in names)


def _legend_below(figure: Figure, axes: Axes, lines: Sequence[Curve | Line]) -> None:
    """Draw the legend below the title of the horizontal axis; constrained layout makes space."""
    shift = ScaledTranslation(-Y_AXIS_WIDTH, -X_AXIS_HEIGHT, figure.dpi_scale_trans)
    below = axes.transAxes + shift
    longest = max(len(line.label) for line in lines)
    legend = axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=below,
        ncols=2 if longest < KEY_CHARACTERS / 3 else 1,
    )
    for line, handle, text in zip(lines, legend.get_lines(), legend.get_texts(), strict=True):
        handle.set_gid(_gid(line.label))
        text.set_gid(_gid(line.label))


def draw_sizes(ladder: Ladder) -> Figure:
    """Draw the differences of rows from base over the number of parameters, on a log axis."""
    lines = []
    for row in ladder.rows:
        differences = [rung.difference for rung in row.rungs]
        points = tuple(zip(ladder.sizes.values(), differences, strict=True))
        lines.append(Line(row.name, row.name, points))
    label = f"Δ{ladder.metric.full_title}"
    figure = draw_lines(lines, "parameters of base", label, log_x=True, zero_line=True)
    if ladder.metric.is_log:
        for axes in figure.axes:
            label_ratios(axes.yaxis)
    return figure


@style()
def draw_lines(
    lines: Sequence[Line], x: str, y: str, *, log_x: bool = False, zero_line: bool = False
) -> Figure:
    """Draw rows along an axis: seeds as thin lines, means as thick lines. If there are more rows
    than colors, they are split into panels.

    Args:
        lines: the rows.
        x: label of the horizontal axis.
        y: label of the vertical axis.
        log_x: whether the horizontal axis is logarithmic.
        zero_line: whether the vertical axis includes 0, with a line.
    """
    panels = split(lines, len(SERIES))
    names = []
    xs = []
    values = [0.0] if zero_line else []
    for line in lines:
        names.append(line.name)
        for position, scores in line.points:
            xs.append(position)
            values += scores.by_seed.values()
    height = len(panels) * (PANEL_HEIGHT + X_AXIS_HEIGHT) + LINE_HEIGHT * _count_lines(names)
    figure, all_axes = new_figure(COLUMN, height, len(panels))
    for axes, panel in zip(all_axes, panels, strict=True):
        set_range(axes.yaxis, values, log=False)
        set_range(axes.xaxis, xs, log=log_x, amounts=True)
        if zero_line:
            axes.axhline(0, color=PALETTE["soft"], linewidth=0.8, zorder=1)
        axes.grid(axis="y")
        axes.set(xlabel=x, ylabel=y)
        for line, color in zip(panel, SERIES, strict=False):
            _draw_line(axes, line, PALETTE[color])
        _legend_below(figure, axes, panel)
    return figure


def _draw_line(axes: Axes, line: Line, color: str) -> None:
    marks: dict[str, Any] = {"color": color, "gid": _gid(line.label), "zorder": 2}
    xs, all_scores = zip(*line.points, strict=True)
    # NaN where a run has no score.
    for seed in sorted(set(chain.from_iterable(scores.by_seed for scores in all_scores))):
        values = [scores.by_seed.get(seed, math.nan) for scores in all_scores]
        axes.plot(xs, values, linewidth=0.5, alpha=0.5, **marks)
    means = np.array([scores.mean for scores in all_scores], dtype=float)  # NaN for None
    label = _folded(line.name, KEY_CHARACTERS)
    axes.plot(xs, means, "-o", linewidth=1.4, markersize=3, label=label, **marks)


@style()
def draw_half_normal(effects: Sequence[ForestRow], metric: Metric) -> Figure:
    """Draw a half-normal plot: sizes of effects over the quantiles of the half-normal distribution.

    Effects that are only noise lie on a line through 0. Real effects lie above the line's end.

    Source: Daniel, "Use of Half-Normal Plots in Interpreting Factorial Two-Level Experiments",
        Technometrics (1959).
    """
    sizes = [(abs(effect.mean), effect) for effect in effects if effect.mean is not None]
    sizes.sort(key=itemgetter(0))
    points = []
    for rank, (size, effect) in enumerate(sizes):
        quantile = NormalDist().inv_cdf(0.5 + (rank + 0.5) / len(sizes) / 2)
        has_verdict = effect.word in MARKERS
        points.append(Point(effect.label, effect.name, quantile, size, is_emphasized=has_verdict))
    label = f"size of the effect on {metric.title}"
    figure = _numbered_points(points, "half-normal quantile", label)
    if metric.is_log:
        label_ratios(figure.axes[0].yaxis)
    return figure


@style()
def draw_points(points: Sequence[Point], metric: Metric, cost: str) -> Figure:
    """Draw a numbered point for each row: the score over the cost, with the standard deviation over
    seeds. The names of the rows are below.
    """
    log_x = is_spread([point.x for point in points])
    return _numbered_points(
        points, cost, metric.full_title, log_x=log_x, log_y=metric.is_log, amounts=True
    )


def _numbered_points(
    points: Sequence[Point],
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    amounts: bool = False,
) -> Figure:
    names = [_folded(f"{i}  {point.name}", LINE_CHARACTERS) for i, point in enumerate(points, 1)]
    columns = 2 if max(map(len, names)) <= LINE_CHARACTERS // 2 else 1
    lines = len("\n".join(names).split("\n")) / columns
    height = POINTS_HEIGHT + 0.03 * len(points) + X_AXIS_HEIGHT + LINE_HEIGHT * lines
    figure, (axes,) = new_figure(COLUMN, height)
    ends: list[float] = []
    for point in points:
        ends += point.ends
        marker = "D" if point.is_emphasized else "o"
        color = PALETTE["base" if point.is_emphasized else "c0"]
        zorder = 3 if point.is_emphasized else 2
        marks: dict[str, Any] = {"color": color, "gid": _gid(point.label), "zorder": zorder}
        if point.std:
            axes.plot((point.x, point.x), point.ends, linewidth=0.9, **marks)
        axes.plot((point.x,), (point.y,), marker, markersize=4, **marks)
    set_range(axes.xaxis, [point.x for point in points], log=log_x, amounts=amounts)
    set_range(axes.yaxis, ends, log=log_y)
    axes.set(xlabel=x, ylabel=y)
    handle = Line2D([], [], linestyle="none")
    legend = figure.legend(
        [handle] * len(points), names, loc="outside lower left", ncols=columns, handlelength=0
    )
    _draw_numbers(figure, axes, points)
    for point, text in zip(points, legend.get_texts(), strict=True):
        text.set_gid(_gid(point.label))
    return figure


def _draw_numbers(figure: Figure, axes: Axes, points: Sequence[Point]) -> None:
    """Write a number next to each point. A line connects it with a point that is further away."""
    figure.draw_without_rendering()  # constrained layout places the axes
    scale = 72 / figure.dpi  # pixels to typographic points
    occupied = []
    middles = []
    for point in points:
        low, high = point.ends
        corners = axes.transData.transform([(point.x, low), (point.x, high)]) * scale
        x, y = corners.mean(0)
        middles.append((x, y))
        occupied += [Bbox(corners).padded(1, 0), Bbox([(x - 3, y - 3), (x + 3, y + 3)])]
    pixels = axes.get_window_extent()
    bounds = (pixels.y0 * scale, pixels.y1 * scale)
    for number, (point, middle) in enumerate(zip(points, middles, strict=True), 1):
        offset, box = _free_place(middle, DIGIT_WIDTH * len(str(number)), bounds, occupied)
        occupied.append(box)
        note = axes.annotate(
            str(number),
            (point.x, point.y),
            offset,
            textcoords="offset points",
            size=SMALL,
            va="center_baseline",
            gid=_gid(point.label),
            arrowprops=LEADER if abs(offset[1]) > 2 * HALF_NUMBER_HEIGHT else None,
        )
        if note.arrow_patch:
            note.arrow_patch.set_gid(_gid(point.label))


def _free_place(
    middle: tuple[float, float],
    width: float,
    bounds: tuple[float, float],
    occupied: Sequence[Bbox],
) -> tuple[tuple[float, float], Bbox]:
    """The nearest place for a number of this width, right or left of a point with this middle and
    between the bounds of the axes, where it covers nothing occupied; the last place if there is no
    free one. Positions are in typographic points.

    Returns:
        The offset of the number from the point, and the box of the number.
    """
    bottom, top = bounds
    levels = [0.0]
    for step in range(1, round((top - bottom) / HALF_NUMBER_HEIGHT)):
        levels += [step * HALF_NUMBER_HEIGHT, -step * HALF_NUMBER_HEIGHT]
    for up, right in product(levels, (5.0, -5.0 - width)):
        left_end = middle[0] + right
        lower_end = middle[1] + up - HALF_NUMBER_HEIGHT
        box = Bbox([(left_end, lower_end), (left_end + width, lower_end + 2 * HALF_NUMBER_HEIGHT)])
        if bottom < box.y0 and box.y1 < top and not box.count_overlaps(occupied):
            return (right, up), box
    return (right, up), box


def _gid(row: str) -> str:
    """The id of the marks of a row in SVG."""
    return f"row:{row}"
