"""The report's figures: learning curves, differences from base, score against cost, effects of
designs, and sizes.

One drawing serves the page, as inline SVG, and a paper, as PDF, PNG and SVG files. Sizes are in
inches; constrained layout places axes, labels and legends. A row's marks carry the id `row:LABEL`,
by which the page hides and highlights them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from operator import itemgetter
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox, ScaledTranslation

from ablate.formatting import fold, printable
from ablate.page.points import Interval, Line, Panel, Point, alike, split, within_axis
from ablate.plotting import (
    COLUMN,
    PALETTE,
    SERIES,
    SMALL,
    is_spread,
    new_figure,
    set_range,
    style,
)
from ablate.stats.metrics import PPL, Metric
from ablate.table.curves import AXES, Curve
from ablate.table.ladder import Ladder

BELOW, BESIDE = 0.4, 0.45  # ticks and title of a horizontal and of a vertical axis
LEADING = 0.125  # from one line of small text to the next
# In a line of a name: beside the axes, with its color below a panel, and below a whole figure.
NAME_LETTERS, KEY_LETTERS, LINE_LETTERS = 26, 36, 56
MARKERS = {"worse": "v", "better": "^"}
PAPER_WIDTH = 7.0  # of a figure over both columns of a paper
ACROSS = 3  # panels side by side
TITLE_HEIGHT, PANEL_HEIGHT, POINTS_HEIGHT = 0.2, 1.7, 2.2
LEAST_EFFECTS = 7  # of a half-normal plot: those of 8 cells
DIGIT, STEP = 4.5, 3.5  # typographic points: width of a digit, half the height of a number
LEADER = {"arrowstyle": "-", "linewidth": 0.4, "color": PALETTE["soft"], "shrinkA": 0, "shrinkB": 2}


def effect_label(metric: Metric) -> str:
    """The label of an axis of effects."""
    return f"effect on {_of_scale(metric)}"


def _of_scale(metric: Metric) -> str:
    """The metric as its differences are drawn: by its natural logarithm if it is judged so."""
    return f"ln {metric.full_title}" if metric.is_log else metric.full_title


@style()
def draw_intervals(rows: Sequence[Interval], metric: Metric, label: str = "") -> Figure:
    """Draw one line per row: the mean difference from base, and its 95 % interval over seeds.

    A row that is off the axis has its difference in numbers, at the end of the axis.

    `label`: of the axis, for other differences.
    """
    label = label or f"difference from base in {_of_scale(metric)}"
    return _forest(rows, label, metric.difference_text)


@style()
def draw_ratios(rows: Sequence[Interval], cost: str) -> Figure:
    """Draw one line per row: its effective speed-up in a cost, with its interval; 1 is base."""
    return _forest(rows, f"effective speed-up in {cost}", "{:.2f}".format, reference=1.0)


def _forest(
    rows: Sequence[Interval], label: str, written: Callable[[float], str], reference: float = 0.0
) -> Figure:
    names, middles, ends = [], [], [0.0]
    # The vertical axis counts lines of text.
    for row in rows:
        name = _folded(row.name, NAME_LETTERS)
        height = 0.6 + len(name.split("\n"))
        names.append(name)
        ends.append(ends[-1] + height)
        middles.append(ends[-1] - height / 2)
    figure, (axes,) = new_figure(COLUMN, LEADING * ends[-1] + BELOW)
    axes.set_yticks(middles, names)
    axes.tick_params("y", length=0, labelcolor=PALETTE["ink"])
    axes.set(ylim=(ends[-1], 0), xlabel=label)
    # With the line of no difference, so that it is always in the figure.
    set_range(axes.xaxis, [reference, *_ends(rows, reference)], log=False)
    axes.grid(axis="x")
    axes.set_axisbelow(True)  # the grid is under the marks, which are thin
    axes.spines.left.set_visible(False)
    axes.axvline(reference, color=PALETTE["soft"], linewidth=0.8, zorder=1)
    for before, row, y in zip(rows, rows[1:], ends[1:], strict=False):
        if row.group != before.group:  # a rule between groups, as in the paper's Table 3
            axes.axhline(y, color=PALETTE["line"], linewidth=0.5, zorder=0.5)
    for row, y, text in zip(rows, middles, axes.get_yticklabels(), strict=True):
        text.set_gid(_id(row.row))
        _interval(axes, row, y, reference, written)
    return figure


def _ends(rows: Sequence[Interval], reference: float) -> list[float]:
    """The values that an axis holds: those of the rows within it, and as much room again on a side
    where a row is off it.
    """
    within = within_axis(rows, reference)
    ends, reach = [], 0.0
    for row in within:
        ends += row.ends
        reach = max(reach, row.reach(reference))
    for row in rows:
        if row.mean is not None and row not in within:
            ends.append(reference + math.copysign(reach, row.mean - reference))
    return ends


def _interval(
    axes: Axes, row: Interval, y: float, reference: float, written: Callable[[float], str]
) -> None:
    low, high = axes.get_xlim()
    if row.mean is None:
        # From the left end, because beside the line of no difference there may be no room.
        _note(axes, row, (low, y), row.word or "no result yet", PALETTE["soft"])
        return
    color, fill = PALETTE["base"], PALETTE["paper"]
    if row.word in MARKERS:
        color = fill = PALETTE[row.word]
    marks: dict[str, Any] = {"color": color, "gid": _id(row.row)}
    if row.low is not None and row.high is not None:
        axes.plot(np.clip((row.low, row.high), low, high), (y, y), linewidth=1.3, **marks)
    at = float(np.clip(row.mean, low, high))
    marks |= {"markerfacecolor": fill, "markersize": 4.5, "clip_on": at == row.mean}
    axes.plot((at,), (y,), MARKERS.get(row.word, "o"), **marks)
    # A row off the axis has its difference in numbers, with an arrow towards it.
    if row.mean < low:
        _note(axes, row, (at, y), f"\N{LEFTWARDS ARROW} {written(row.mean)}", color)
    elif row.mean > high:
        text = f"{written(row.mean)} \N{RIGHTWARDS ARROW}"
        _note(axes, row, (at, y), text, color, side="right")


def _note(
    axes: Axes, row: Interval, at: tuple[float, float], text: str, color: str, side: str = "left"
) -> None:
    """Write beside a point, over the grid; the side of the text that is at the point."""
    offset = {"left": 5, "right": -5}[side], 0
    note = axes.annotate(text, at, offset, textcoords="offset points", size=SMALL, color=color)
    under = {"facecolor": PALETTE["paper"], "edgecolor": "none", "pad": 0.5}
    note.set(ha=side, va="center_baseline", gid=_id(row.row), bbox=under, in_layout=False)


@style()
def draw_curves(groups: Sequence[Panel], *, of: Sequence[Panel] = ()) -> Figure:
    """Draw panels of learning curves: every run as a thin line, and the mean of each row as a thick
    one.

    Args:
        groups: the panels of this figure.
        of: all panels that are compared; by default those of this figure. They have the same axes,
            but for a panel with a row far above the others.
    """
    compared, near = of or groups, alike(of or groups)
    across = min(ACROSS, len(groups))
    width = PAPER_WIDTH / ACROSS if across > 1 else COLUMN
    down = -(-len(groups) // across)
    lines = [_count_lines(panel.names) for panel in groups]
    height = LEADING * sum(max(lines[i : i + across]) for i in range(0, len(lines), across))
    height += down * (PANEL_HEIGHT + BELOW)
    if len(groups) > 1:
        height += down * TITLE_HEIGHT
    costs, _ = _evaluated(compared)
    figure, all_axes = new_figure(width * across, height, down, across)
    for axes in all_axes[len(groups) :]:
        axes.remove()
    for panel, axes in zip(groups, all_axes, strict=False):
        shared, title = near, panel.title
        if panel not in near:
            shared, title = [panel], f"{panel.title} (own scale)"
        if len(groups) > 1:
            text = _folded(title, KEY_LETTERS)
            axes.set_title(text, size=SMALL, weight="bold", loc="left")
        # Over all panels: curves of different panels are compared by eye.
        _, perplexities = _evaluated(shared)
        set_range(axes.yaxis, perplexities, log=is_spread(perplexities))
        set_range(axes.xaxis, [0, *costs], log=False, amounts=True)
        axes.grid(axis="y")
        side = PPL.side
        if any(curve.training for curve in panel.curves):
            side += "; dotted: training"
        axes.set(xlabel=AXES[panel.curves[0].axis], ylabel=f"{PPL.title} ({side})")
        for curve, name in zip(panel.curves, panel.names, strict=True):
            _curve(axes, curve, panel.color(curve.row), name)
        _legend_below(figure, axes, panel.curves)
    return figure


def _evaluated(panels: Iterable[Panel]) -> tuple[list[float], list[float]]:
    """The costs and the perplexities of all evaluations."""
    points: list[tuple[float, float]] = []
    for panel in panels:
        for curve in panel.curves:
            for run in curve.points.values():
                points += run
            if curve.training is not None:
                points += curve.training.mean
    costs, perplexities = map(list, zip(*points, strict=True))
    return costs, perplexities


def _curve(axes: Axes, curve: Curve, color: str, name: str) -> None:
    line, zorder = ("--", 3) if color == "base" else ("-", 2)
    marks: dict[str, Any] = {"color": PALETTE[color], "gid": _id(curve.row), "zorder": zorder}
    for run in curve.points.values():
        axes.plot(*zip(*run, strict=True), linewidth=0.5, alpha=0.5, **marks)
    # A single evaluation makes no line.
    marks |= {"marker": "o" if len(curve.mean) == 1 else None, "markersize": 3}
    label = _folded(name, KEY_LETTERS)
    axes.plot(*np.reshape(curve.mean, (-1, 2)).T, line, label=label, linewidth=1.4, **marks)
    if curve.training is not None:
        axes.plot(*zip(*curve.training.mean, strict=True), ":", linewidth=1.0, **marks)


def _folded(name: str, letters: int) -> str:
    """A name in lines of at most this many letters."""
    return "\n".join(fold(printable(name), letters))


def _count_lines(names: Iterable[str]) -> int:
    """Lines of a legend with these names."""
    return sum(len(fold(name, KEY_LETTERS)) for name in names)


def _legend_below(figure: Figure, axes: Axes, lines: Sequence[Curve | Line]) -> None:
    """Name the rows below the title of the horizontal axis; constrained layout makes the room."""
    below = axes.transAxes + ScaledTranslation(-BESIDE, -BELOW, figure.dpi_scale_trans)
    longest = max(len(line.row) for line in lines)
    legend = axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=below,
        ncols=2 if longest < KEY_LETTERS / 3 else 1,
    )
    for line, handle, text in zip(lines, legend.get_lines(), legend.get_texts(), strict=True):
        handle.set_gid(_id(line.row))
        text.set_gid(_id(line.row))


def draw_sizes(ladder: Ladder) -> Figure:
    """Draw the differences of rows from base over the parameters of base, on a log axis."""
    lines = []
    for row in ladder.rows:
        differences = [rung.difference for rung in row.rungs]
        points = tuple(zip(ladder.sizes.values(), differences, strict=True))
        lines.append(Line(row.name, row.name, points))
    label = f"Δ{_of_scale(ladder.metric)}"
    return draw_lines(lines, "parameters of base", label, from_base=True)


@style()
def draw_lines(lines: Sequence[Line], x: str, y: str, *, from_base: bool = False) -> Figure:
    """Draw rows along an axis: thin lines are seeds, thick ones means. Rows are in parts of nearly
    equal size, with one for each color at most.

    Args:
        lines: the rows.
        x: label of the horizontal axis.
        y: label of the vertical axis.
        from_base: whether the values are differences from base, over sizes of models.
    """
    parts = split(lines, len(SERIES))
    names, places, values = [], [], [0.0] if from_base else []
    for line in lines:
        names.append(line.name)
        for place, scores in line.points:
            places.append(place)
            values += scores.by_seed.values()
    height = len(parts) * (PANEL_HEIGHT + BELOW) + LEADING * _count_lines(names)
    figure, all_axes = new_figure(COLUMN, height, len(parts))
    for axes, part in zip(all_axes, parts, strict=True):
        set_range(axes.yaxis, values, log=False)
        set_range(axes.xaxis, places, log=from_base, amounts=True)
        if from_base:
            axes.axhline(0, color=PALETTE["soft"], linewidth=0.8, zorder=1)
        axes.grid(axis="y")
        axes.set(xlabel=x, ylabel=y)
        for line, color in zip(part, SERIES, strict=False):
            _line(axes, line, PALETTE[color])
        _legend_below(figure, axes, part)
    return figure


def _line(axes: Axes, line: Line, color: str) -> None:
    marks: dict[str, Any] = {"color": color, "gid": _id(line.row), "zorder": 2}
    places, scores = zip(*line.points, strict=True)
    by_seed = pd.DataFrame([of_place.by_seed for of_place in scores]).sort_index(axis="columns")
    axes.plot(places, by_seed, linewidth=0.5, alpha=0.5, **marks)
    means = np.array([of_place.mean for of_place in scores], dtype=float)  # NaN for None
    label = _folded(line.name, KEY_LETTERS)
    axes.plot(places, means, "-o", linewidth=1.4, markersize=3, label=label, **marks)


@style()
def draw_half_normal(effects: Sequence[Interval], metric: Metric) -> Figure:
    """Draw a half-normal plot: sizes of effects over the quantiles that pure noise would have.

    Effects that are only noise are on a line through 0; real ones are above its end.

    Source: Daniel, "Use of Half-Normal Plots in Interpreting Factorial Two-Level Experiments",
        Technometrics (1959).
    """
    known = [(abs(effect.mean), effect) for effect in effects if effect.mean is not None]
    known.sort(key=itemgetter(0))
    rows = []
    for place, (size, effect) in enumerate(known):
        quantile = NormalDist().inv_cdf(0.5 + (place + 0.5) / len(known) / 2)
        significant = effect.word in MARKERS
        rows.append(Point(effect.row, effect.name, significant, quantile, size, 0.0))
    label = f"size of the effect on {'ln ' if metric.is_log else ''}{metric.title}"
    return _numbered_points(rows, "half-normal quantile", label, log=False)


@style()
def draw_points(rows: Sequence[Point], metric: Metric, cost: str) -> Figure:
    """Draw one point per row: its cost to the right, its score upwards, with the standard deviation
    over seeds. Points are numbered, and the names are below.
    """
    log = is_spread([row.cost for row in rows])
    return _numbered_points(rows, cost, metric.full_title, log=log)


def _numbered_points(rows: Sequence[Point], x: str, y: str, *, log: bool) -> Figure:
    names = [_folded(f"{number}  {row.name}", LINE_LETTERS) for number, row in enumerate(rows, 1)]
    columns = 2 if max(map(len, names)) <= LINE_LETTERS // 2 else 1
    lines = len("\n".join(names).split("\n")) / columns
    height = POINTS_HEIGHT + 0.03 * len(rows) + BELOW + LEADING * lines
    figure, (axes,) = new_figure(COLUMN, height)
    costs: list[float] = []
    ends: list[float] = []
    for row in rows:
        costs.append(row.cost)
        ends += row.ends
        marker, color, zorder = ("D", "base", 3) if row.is_base else ("o", "c0", 2)
        marks: dict[str, Any] = {"color": PALETTE[color], "gid": _id(row.row), "zorder": zorder}
        if row.std:
            axes.plot((row.cost, row.cost), row.ends, linewidth=0.9, **marks)
        axes.plot((row.cost,), (row.score,), marker, markersize=4, **marks)
    set_range(axes.xaxis, costs, log=log, amounts=True)
    set_range(axes.yaxis, ends, log=False)
    axes.set(xlabel=x, ylabel=y)
    handle = Line2D([], [], linestyle="none")
    legend = figure.legend(
        [handle] * len(rows), names, loc="outside lower left", ncols=columns, handlelength=0
    )
    _number(figure, axes, rows)
    for row, text in zip(rows, legend.get_texts(), strict=True):
        text.set_gid(_id(row.row))
    return figure


def _number(figure: Figure, axes: Axes, rows: Sequence[Point]) -> None:
    """Write numbers beside the points: where none covers another, a point or an error bar, with a
    line to a point that is further away.
    """
    figure.draw_without_rendering()  # constrained layout places the axes
    scale = 72 / figure.dpi  # pixels to typographic points
    taken, middles = [], []
    for row in rows:
        low, high = row.ends
        corners = axes.transData.transform([(row.cost, low), (row.cost, high)]) * scale
        x, y = corners.mean(0)
        middles.append((x, y))
        taken += [Bbox(corners).padded(1, 0), Bbox([(x - 3, y - 3), (x + 3, y + 3)])]
    bounds = axes.get_window_extent()
    top, bottom = bounds.y1 * scale, bounds.y0 * scale
    levels = [0.0]
    for step in range(1, round((top - bottom) / STEP)):
        levels += [step * STEP, -step * STEP]
    for number, (row, (x, y)) in enumerate(zip(rows, middles, strict=True), 1):
        width = DIGIT * len(str(number))
        for up, side in product(levels, (5.0, -5.0 - width)):
            corner = (x + side, y + up - STEP)
            box = Bbox([corner, (corner[0] + width, corner[1] + 2 * STEP)])
            if bottom < box.y0 and box.y1 < top and not box.count_overlaps(taken):
                break
        taken.append(box)
        note = axes.annotate(
            str(number),
            (row.cost, row.score),
            (side, up),
            textcoords="offset points",
            size=SMALL,
            va="center_baseline",
            gid=_id(row.row),
            arrowprops=LEADER if abs(up) > 2 * STEP else None,
        )
        if note.arrow_patch:
            note.arrow_patch.set_gid(_id(row.row))


def _id(row: str) -> str:
    return f"row:{row}"
