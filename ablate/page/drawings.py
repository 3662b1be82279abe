"""The figures of a study, for the page and as files for a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from markupsafe import Markup
from matplotlib.figure import Figure

from ablate.formatting import number, plural, scaled
from ablate.page.figures import draw_curves, draw_intervals, draw_points
from ablate.page.points import (
    COSTS,
    ForestRow,
    axis_range,
    cost_points,
    curves_in_figures,
    difference_rows,
    panels,
    shared_axis_panels,
)
from ablate.plotting import inline_svg
from ablate.stats.metrics import PPL, Metric
from ablate.table.curves import AXES, Curve
from ablate.table.table import Table


@dataclass(frozen=True)
class Drawing:
    """A figure.

    name: name of its files, without a suffix, and prefix of the ids in its SVG on the page.
    draw: function that draws the figure.
    title: title above the figure on the page.
    description: description for screen readers.
    tooltips: tooltip of each row, by label.
    caption: text below the figure on the page.
    is_on_page: whether the page has the figure.
    is_file: whether the figure is written to files.
    """

    name: str
    draw: Callable[[], Figure]
    title: str = ""
    description: str = ""
    tooltips: Mapping[str, str] = field(default_factory=dict)
    caption: str = ""
    is_on_page: bool = True
    is_file: bool = True

    @property
    def svg(self) -> Markup:
        """The figure as an element of the page."""
        return inline_svg(self.draw(), self.name, self.description, self.tooltips)


def better_side(metric: Metric) -> str:
    """The caption of a figure with differences in a metric."""
    return f"Better is to the {'right' if metric.more_is_better else 'left'}."


def difference_drawings(table: Table) -> Iterator[Drawing]:
    """Yield the differences from base, for each metric with a difference."""
    for metric in table.compared_metrics:
        rows = difference_rows(table, metric)
        if not rows:
            continue
        caption = better_side(metric)
        if n_off := _count_off_axis(rows):
            caption += f" Off the axis, with the difference as a number: {plural(n_off, 'row')}."
        yield Drawing(
            f"against-base-{metric.name}",
            partial(draw_intervals, rows, metric),
            title=metric.title,
            description=(
                f"Difference from base in {metric.title} of each row, with its 95 % interval"
            ),
            tooltips={row.label: _interval_text(row, metric) for row in rows},
            caption=caption,
        )


def _count_off_axis(rows: Sequence[ForestRow]) -> int:
    low, high = axis_range(rows)
    return sum(row.mean is not None and not low <= row.mean <= high for row in rows)


def _interval_text(row: ForestRow, metric: Metric) -> str:
    text = f"{row.label}: {metric.difference_text(row.mean, row.interval) or 'no result yet'}"
    if row.word and row.mean is not None:
        text += f" {metric.title}, {row.word}"
    return text


def curve_drawings(table: Table, curves: Sequence[Curve]) -> Iterator[tuple[str, list[Drawing]]]:
    """Yield the title of each axis with curves, and its figures: a file with all panels, then a
    figure of each panel for the page.
    """
    shown = curves_in_figures(table, curves)
    for axis, axis_name in AXES.items():
        groups = panels([curve.over(axis) for curve in shown])
        if not groups:
            continue
        suffix = "" if axis == "step" else f"-{axis}"
        all_panels = partial(draw_curves, groups)
        drawings = [Drawing(f"learning-curves{suffix}", all_panels, is_on_page=False)]
        for index, panel in enumerate(groups):
            tooltips = {curve.label: _curve_text(curve) for curve in panel.curves}
            caption = ""
            if panel not in shared_axis_panels(groups):
                caption = "This panel has another scale of perplexity."
            drawing = Drawing(
                f"curves{suffix}-{index}",
                partial(draw_curves, [panel], compared=groups),
                title=panel.title,
                description=f"{PPL.title} by {axis_name} of {', '.join(tooltips)}",
                tooltips=tooltips,
                caption=caption,
                is_file=False,
            )
            drawings.append(drawing)
        yield axis_name, drawings


def _curve_text(curve: Curve) -> str:
    """The values of a curve as text: up to eight evaluations at equal distances, and the last."""
    evaluations = curve.mean or next(iter(curve.points.values()))
    stride = max(1, -(-len(evaluations) // 8))
    values = []
    for cost, value in [*evaluations[:-1][::stride], evaluations[-1]]:
        values.append(f"{value:.{PPL.digits}f} at {_amount(cost, curve.axis)}")
    return f"{curve.label}, {PPL.title}: {', '.join(values)}"


def _amount(cost: float, axis: str) -> str:
    if axis == "step":
        return f"step {cost}"
    return f"{scaled(cost, '').strip()} {AXES[axis]}"


def cost_drawings(table: Table) -> Iterator[Drawing]:
    """Yield figures of the main score over cost, for each cost in which rows differ."""
    metric = table.main_metric
    for name, cost in COSTS.items():
        points = cost_points(table, name)
        if not points:
            continue
        tooltips = {}
        for point in points:
            score = number(point.y, metric.digits)
            amount = scaled(point.x, "").strip()
            tooltips[point.label] = f"{point.label}: {score} {metric.title}, {cost.title} {amount}"
        yield Drawing(
            f"cost-{name}",
            partial(draw_points, points, metric, cost.title),
            title=f"By {cost.title}",
            description=f"{metric.title} of each row against {cost.title}",
            tooltips=tooltips,
        )
