"""Sections of the page for designs: sizes, effects of factorials and paths, tuning, and effective
speed-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ablate.analysis.curves import AXES, Curve, SpeedUp, all_speed_ups
from ablate.analysis.designs import DesignEffects, design_effects, metrics_of
from ablate.analysis.ladder import Ladder, ladders
from ablate.analysis.table import Table
from ablate.config.metrics import Metric
from ablate.formatting import number
from ablate.page.figures import (
    LEAST_EFFECTS,
    draw_half_normal,
    draw_intervals,
    draw_lines,
    draw_ratios,
    draw_sizes,
    effect_label,
)
from ablate.page.points import COSTS, Interval, contrasts, over_test_sizes, ratios_by_axis
from ablate.plotting import inline_svg
from ablate.report.design_tables import effects_layout, ladder_layout
from ablate.report.layout import one_line_heads
from ablate.study.tuning import Tuning


@dataclass(frozen=True)
class Drawing:
    """A figure of the page."""

    title: str
    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class Listing:
    """A plain table; the first cell of each row is its head."""

    caption: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class DesignSection:
    """A section of the page: tables, then figures.

    id: its anchor.
    note: how to read it.
    """

    id: str
    title: str
    note: str
    listings: Sequence[Listing] = ()
    drawings: Sequence[Drawing] = ()


def design_sections(table: Table, curves: Sequence[Curve]) -> list[DesignSection]:
    """The sections that a study's designs have something for."""
    of_table = (_test_sizes, _ladders, _effects, _tunings)
    return [*(section for make in of_table for section in make(table)), *_speed_ups(curves)]


def _test_sizes(table: Table) -> Iterator[DesignSection]:
    lines, size = over_test_sizes(table)
    if lines:
        metric, titles = table.main, {}
        for line in lines:
            means = [f"{number(one.mean, metric.digits)} at {place}" for place, one in line.points]
            titles[line.row] = f"{line.name}: {', '.join(means)}"
        label = f"{size} of test items"
        figure = draw_lines(lines, label, f"{metric.title} ({metric.side})")
        svg = inline_svg(figure, "test-sizes", f"{metric.title} over the {label}", titles)
        note = "Each row is one training. Thin lines are its seeds, the thick line is their mean."
        yield DesignSection(
            "test-sizes", f"Over the {label}", note, [], [Drawing(metric.title, svg)]
        )


def _ladders(table: Table) -> Iterator[DesignSection]:
    found = ladders(table)
    if found:
        layouts = [one_line_heads(ladder_layout(one)) for one in found]
        listings = [
            Listing(f"Δ{ladder.metric.title}", tuple(column.head for column in layout.columns),
                    list(zip(*(column.cells for column in layout.columns), strict=True)))
            for ladder, layout in zip(found, layouts, strict=True)
        ]  # fmt: skip
        drawings = [_sizes_drawing(one) for one in found if one.has_differences]
        yield DesignSection("sizes", "Over sizes", " ".join(layouts[0].legend), listings, drawings)


def _sizes_drawing(ladder: Ladder) -> Drawing:
    metric = ladder.metric
    titles = {}
    for row in ladder.rows:
        differences = [metric.difference_text(rung.difference.mean) or "?" for rung in row.rungs]
        titles[row.name] = f"{row.name}: {', '.join(differences)}"
    description = f"Difference from base in {metric.title} of each row over the parameters of base"
    return Drawing(
        f"Δ{metric.title}",
        inline_svg(draw_sizes(ladder), f"sizes-{metric.name}", description, titles),
    )


def _effects(table: Table) -> Iterator[DesignSection]:
    for number_of, design in enumerate(design_effects(table), 1):
        layout = one_line_heads(effects_layout(table, design))
        heads = tuple(column.head for column in layout.columns)
        rows = list(zip(*(column.cells for column in layout.columns), strict=True))
        drawings = [
            drawing
            for metric in metrics_of(table)
            for drawing in _effect_drawing(design, metric, f"{number_of}")
        ]
        yield DesignSection(
            f"design-{number_of}",
            design.title,
            " ".join(design.notes),
            [Listing("Effects", heads, rows)],
            drawings,
        )


def _effect_drawing(design: DesignEffects, metric: Metric, number_of: str) -> Iterator[Drawing]:
    rows = contrasts(design, metric)
    if not any(row.mean is not None for row in rows):
        return
    label = effect_label(metric)
    figure = draw_intervals(rows, metric, label)
    titles = {
        row.row: f"{row.row}: {metric.difference_text(row.mean)} {metric.title}" for row in rows
    }
    svg = inline_svg(
        figure, f"effects-{number_of}-{metric.name}", f"{design.title}: {label}", titles
    )
    yield Drawing(
        metric.title, svg, f"Better is to the {'right' if metric.more_is_better else 'left'}."
    )
    if design.is_factorial and len(rows) >= LEAST_EFFECTS:
        figure = draw_half_normal(rows, metric)
        description = f"{design.title}: half-normal plot of the effects on {metric.title}"
        svg = inline_svg(figure, f"half-normal-{number_of}-{metric.name}", description, titles)
        caption = (
            "Effects of noise alone are on a line through 0; diamonds are significant (Daniel, "
            "1959)."
        )
        yield Drawing(f"{metric.title}, half-normal", svg, caption)


def _tunings(table: Table) -> Iterator[DesignSection]:
    tuned = {row.row.label: row.row.tuning for row in table.rows if row.row.tuning}
    if not tuned:
        return
    labels = list(
        dict.fromkeys(one.label for tuning in tuned.values() for one in tuning.candidates)
    )
    rows = [
        (row, *_losses(tuning, labels), number(tuning.sensitivity, 3))
        for row, tuning in tuned.items()
    ]
    yield DesignSection(
        "tuning",
        "Tuning",
        "Dev loss of each candidate in nats per token, mean over the tuning seeds; the smallest "
        "is chosen, and marked. Sensitivity: mean over the candidates, at most ln V each, less "
        "the smallest (arXiv 2309.14322).",
        [Listing("Dev loss by candidate", ("row", *labels, "sensitivity"), rows)],
    )


def _losses(tuning: Tuning, labels: Sequence[str]) -> list[str]:
    by_label = dict(zip((one.label for one in tuning.candidates), tuning.losses, strict=False))
    chosen = tuning.chosen.label if tuning.chosen else ""
    texts = {
        label: "diverged" if math.isinf(loss) else f"{loss:.3f}{' *' if label == chosen else ''}"
        for label, loss in by_label.items()
    }
    return [texts.get(label, "awaited") for label in labels]


def _speed_ups(curves: Sequence[Curve]) -> Iterator[DesignSection]:
    found = all_speed_ups(curves)
    rows = [
        (row, *(by_axis[axis].text for axis in AXES))
        for row, by_axis in found.items()
        if _is_known(by_axis)
    ]
    if rows:
        yield DesignSection(
            "speed-up",
            "Effective speed-up",
            "The cost at which base first reaches its final dev perplexity, divided by the cost "
            "at which a row first reaches it with the same seed: 2 if the row needs half. "
            "Geometric mean over seeds with its 95 % interval, uncorrected.",
            [Listing("Effective speed-up by cost", ("row", *AXES.values()), rows)],
            [
                _ratio_drawing(axis, ratios)
                for axis, ratios in ratios_by_axis(curves).items()
                if axis in COSTS
            ],
        )


def _ratio_drawing(axis: str, ratios: Sequence[Interval]) -> Drawing:
    titles = {row.row: f"{row.row}: {number(row.mean, 2) or row.word}" for row in ratios}
    description = f"Effective speed-up of each row in {AXES[axis]}"
    return Drawing(
        f"By {AXES[axis]}",
        inline_svg(draw_ratios(ratios, AXES[axis]), f"speed-up-{axis}", description, titles),
    )


def _is_known(by_axis: dict[str, SpeedUp]) -> bool:
    return any(one.text for one in by_axis.values())
