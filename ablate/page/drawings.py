"""The figures of a study, each declared once: for the page, and as files for a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from markupsafe import Markup
from matplotlib.figure import Figure

from ablate.formatting import number, plural, scaled
from ablate.page.figures import draw_curves, draw_intervals, draw_points
from ablate.page.points import COSTS, Interval, alike, intervals, panels, points, within_axis
from ablate.plotting import inline_svg
from ablate.stats.metrics import PPL, Metric
from ablate.table.curves import AXES, Curve
from ablate.table.table import Table


@dataclass(frozen=True)
class Drawing:
    """A figure.

    title, caption: above and below it on the page.
    file: name of its files, without an ending; empty if only the page has it.
    anchor: distinguishes its ids from those of other figures; empty if the page does not have it.
    description: for screen readers.
    titles: by row label, the text that is shown while the pointer is over a mark.
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
    """Yield the differences from base, in each metric with some."""
    for metric in table.compared:
        rows = intervals(table, metric)
        if not rows:
            continue
        caption = better_side(metric)
        off = sum(row.mean is not None for row in rows) - len(within_axis(rows))
        if off:
            caption += f" Off the axis: {plural(off, 'row')}, in numbers."
        yield Drawing(
            metric.title,
            f"against-base-{metric.name}",
            f"differences-{metric.name}",
            f"Difference from base in {metric.title} of each row, with its 95 % interval",
            {row.row: _interval_title(row, metric) for row in rows},
            partial(draw_intervals, rows, metric),
            caption,
        )


def _interval_title(row: Interval, metric: Metric) -> str:
    text = f"{row.row}: {metric.difference_text(row.mean) or 'no result yet'}"
    if row.low is not None and row.high is not None:
        text += f" {metric.interval_text(row.low, row.high)}"
    if row.word and row.mean is not None:
        text += f" {metric.title}, {row.word}"
    return text


def learning_curves(curves: Sequence[Curve]) -> Iterator[tuple[str, list[Drawing]]]:
    """Yield each axis that has some curves, with a figure for all of them, which is a file, and one
    for each panel, which are on the page.
    """
    for axis, name in AXES.items():
        groups = panels([curve.over(axis) for curve in curves])
        if groups:
            suffix = f"-{axis}".removesuffix("-step")
            every = partial(draw_curves, groups)
            drawings = [Drawing("", f"learning-curves{suffix}", "", "", {}, every)]
            for index, panel in enumerate(groups):
                titles = {curve.row: _curve_title(curve) for curve in panel.curves}
                drawing = Drawing(
                    panel.title,
                    "",
                    f"curves{suffix}-{index}",
                    f"{PPL.title} by {name} of {', '.join(titles)}",
                    titles,
                    partial(draw_curves, [panel], of=groups),
                )
                if panel not in alike(groups):
                    drawing = replace(drawing, caption="Its perplexity has a scale of its own.")
                drawings.append(drawing)
            yield name, drawings


def _curve_title(curve: Curve) -> str:
    """The values of a curve as text: at most eight evaluations, spread evenly, and the last one."""
    evaluations = curve.mean or next(iter(curve.points.values()))
    shown = [*evaluations[:-1][:: max(1, -(-len(evaluations) // 8))], evaluations[-1]]
    values = [f"{value:.{PPL.digits}f} at {_amount(cost, curve.axis)}" for cost, value in shown]
    return f"{curve.row}, {PPL.title}: {', '.join(values)}"


def _amount(cost: float, axis: str) -> str:
    if axis == "step":
        return f"step {cost}"
    return f"{scaled(cost, '').strip()} {AXES[axis]}"


def costs(table: Table) -> Iterator[Drawing]:
    """Yield the main score against each cost in which rows differ."""
    metric = table.main
    for cost, name in COSTS.items():
        rows = points(table, cost)
        if rows:
            titles = {}
            for row in rows:
                score, amount = number(row.score, metric.digits), scaled(row.cost, "").strip()
                titles[row.row] = f"{row.row}: {score} {metric.title}, {name} {amount}"
            yield Drawing(
                f"By {name}",
                f"cost-{cost}",
                f"cost-{cost}",
                f"{metric.title} of each row against {name}",
                titles,
                partial(draw_points, rows, metric, name),
            )
