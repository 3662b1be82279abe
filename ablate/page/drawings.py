"""The figures of a study, for the page and as files for a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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

    title: title above the figure on the page.
    file: name of its files, without a suffix; empty if only the page has the figure.
    anchor: prefix of the ids in its SVG, unique on the page; empty if the page lacks the figure.
    description: description for screen readers.
    titles: tooltip of each row, by label.
    draw: function that draws the figure.
    caption: text below the figure on the page.
    """

    title: str
    file: str
    anchor: str
    description: str
    titles: Mapping[str, str]
    draw: Callable[[], Figure]
    caption: str = ""

    @property
    def svg(self) -> Markup:
        """The figure as an element of the page."""
        return inline_svg(self.draw(), self.anchor, self.description, self.titles)


def better_side(metric: Metric) -> str:
    """The caption of a figure with differences in a metric."""
    return f"Better is to the {'right' if metric.more_is_better else 'left'}."


def differences(table: Table) -> Iterator[Drawing]:
    """Yield the differences from base, for each metric with a difference."""
    for metric in table.compared_metrics:
        rows = difference_rows(table, metric)
        if not rows:
            continue
        caption = better_side(metric)
        if n_off := _count_off_axis(rows):
            caption += f" Off the axis, with the difference as a number: {plural(n_off, 'row')}."
        yield Drawing(
            metric.title,
            f"against-base-{metric.name}",
            f"differences-{metric.name}",
            f"Difference from base in {metric.title} of each row, with its 95 % interval",
            {row.label: _interval_title(row, metric) for row in rows},
            partial(draw_intervals, rows, metric),
            caption,
        )


def _count_off_axis(rows: Sequence[ForestRow]) -> int:
    low, high = axis_range(rows)
    return sum(row.mean is not None and not low <= row.mean <= high for row in rows)


def _interval_title(row: ForestRow, metric: Metric) -> str:
    text = f"{row.label}: {metric.difference_text(row.mean, row.interval) or 'no result yet'}"
    if row.word and row.mean is not None:
        text += f" {metric.title}, {row.word}"
    return text


def learning_curves(table: Table, curves: Sequence[Curve]) -> Iterator[tuple[str, list[Drawing]]]:
    """Yield the title of each axis with curves, and its figures: a file with all panels, then a
    figure of each panel for the page.
    """
    shown = curves_in_figures(table, curves)
    for axis, name in AXES.items():
        groups = panels([curve.over(axis) for curve in shown])
        if groups:
            suffix = f"-{axis}".removesuffix("-step")
            draw_all = partial(draw_curves, groups)
            drawings = [Drawing("", f"learning-curves{suffix}", "", "", {}, draw_all)]
            for index, panel in enumerate(groups):
                titles = {curve.label: _curve_title(curve) for curve in panel.curves}
                drawing = Drawing(
                    panel.title,
                    "",
                    f"curves{suffix}-{index}",
                    f"{PPL.title} by {name} of {', '.join(titles)}",
                    titles,
                    partial(draw_curves, [panel], compared=groups),
                )
                if panel not in shared_axis_panels(groups):
                    drawing = replace(
                        drawing, caption="This panel has another scale of perplexity."
                    )
                drawings.append(drawing)
            yield name, drawings


def _curve_title(curve: Curve) -> str:
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


def costs(table: Table) -> Iterator[Drawing]:
    """Yield figures of the main score over cost, for each cost in which rows differ."""
    metric = table.main_metric
    for cost, name in COSTS.items():
        rows = cost_points(table, cost)
        if rows:
            titles = {}
            for row in rows:
                score = number(row.score, metric.digits)
                amount = scaled(row.cost, "").strip()
                titles[row.label] = f"{row.label}: {score} {metric.title}, {name} {amount}"
            yield Drawing(
                f"By {name}",
                f"cost-{cost}",
                f"cost-{cost}",
                f"{metric.title} of each row against {name}",
                titles,
                partial(draw_points, rows, metric, name),
            )
