"""Sections of the page: sizes, effects of designs, choices, and effective speed-up."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from ablate.formatting import number
from ablate.page.drawings import Drawing, better_side, costs, differences, learning_curves
from ablate.page.figures import (
    MIN_EFFECTS,
    draw_half_normal,
    draw_intervals,
    draw_lines,
    draw_sizes,
    draw_speed_ups,
    effect_label,
)
from ablate.page.points import (
    COSTS,
    curves_in_figures,
    effect_rows,
    lines_over_test_sizes,
    speed_up_rows,
)
from ablate.plotting import FORMATS, render
from ablate.stats.metrics import Metric
from ablate.table.curves import AXES, Curve, speed_ups
from ablate.table.designs import DesignEffects, design_effects, effects_layout
from ablate.table.experiment import ChosenSettings
from ablate.table.ladder import Ladder, ladder_layout, ladders
from ablate.table.layout import Layout
from ablate.table.table import Table

LOSSES_NOTE = (
    "Dev loss of each candidate in nats per token, mean over the tuning seeds; the smallest is "
    "chosen, and marked. Sensitivity: mean of the losses (each at most ln V) minus the smallest "
    "loss (arXiv 2309.14322)."
)


@dataclass(frozen=True)
class Listing:
    """A plain table. The first cell of a row is its title."""

    caption: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class DesignSection:
    """A section of the page: tables, then figures.

    id: anchor of the section.
    note: explanation below the title.
    drawings: figures of the section; the page leaves out figures without an anchor.
    """

    id: str
    title: str
    note: str
    listings: Sequence[Listing] = ()
    drawings: Sequence[Drawing] = ()


def figure_files(
    table: Table, curves: Sequence[Curve], formats: Sequence[str] = FORMATS
) -> dict[str, bytes]:
    """All figures with data, in each of the formats, by file name.

    Equal results give equal bytes.
    """
    drawings = list(differences(table))
    for _, axis_drawings in learning_curves(table, curves):
        drawings += axis_drawings
    drawings += costs(table)
    for section in design_sections(table, curves):
        drawings += section.drawings
    files = {}
    for drawing in drawings:
        if drawing.file:
            figure = drawing.draw()
            for suffix in formats:
                files[f"{drawing.file}.{suffix}"] = render(figure, suffix)
    return files


def design_sections(table: Table, curves: Sequence[Curve]) -> list[DesignSection]:
    """The sections for which the study has data."""
    return [
        *_test_sizes(table),
        *_ladders(table),
        *_effects(table),
        *_tuning(table),
        *_speed_ups(table, curves),
    ]


def _listing(caption: str, layout: Layout) -> Listing:
    return Listing(caption, tuple(column.flat_head for column in layout.columns), layout.rows)


def _test_sizes(table: Table) -> Iterator[DesignSection]:
    lines, size = lines_over_test_sizes(table)
    if lines:
        metric = table.main_metric
        label = f"{size} of test items"
        titles = {}
        for line in lines:
            means = [f"{number(scores.mean, metric.digits)} at {x}" for x, scores in line.points]
            titles[line.label] = f"{line.name}: {', '.join(means)}"
        drawing = Drawing(
            metric.title,
            f"over-{size}-{metric.name}",
            "test-sizes",
            f"{metric.title} over the {label}",
            titles,
            partial(draw_lines, lines, label, f"{metric.title} ({metric.side})"),
        )
        note = "Each row is one training. Thin lines are its seeds, the thick line is their mean."
        yield DesignSection("test-sizes", f"Over the {label}", note, drawings=[drawing])


def _ladders(table: Table) -> Iterator[DesignSection]:
    listings = []
    drawings = []
    notes = []
    for ladder in ladders(table):
        layout = ladder_layout(ladder)
        notes.append(" ".join(layout.legend))
        listings.append(_listing(f"Δ{ladder.metric.title}", layout))
        if ladder.has_differences:
            drawings.append(_sizes_drawing(ladder))
    if listings:
        yield DesignSection("sizes", "Over sizes", notes[0], listings, drawings)


def _sizes_drawing(ladder: Ladder) -> Drawing:
    metric = ladder.metric
    titles = {}
    for row in ladder.rows:
        texts = [metric.difference_text(rung.difference.mean) or "?" for rung in row.rungs]
        titles[row.name] = f"{row.name}: {', '.join(texts)}"
    return Drawing(
        f"Δ{metric.title}",
        f"sizes-{metric.name}",
        f"sizes-{metric.name}",
        f"Difference from base in {metric.title} of each row over the parameters of base",
        titles,
        partial(draw_sizes, ladder),
    )


def _effects(table: Table) -> Iterator[DesignSection]:
    designs = design_effects(table)
    for index, (design, file) in enumerate(zip(designs, file_names(designs), strict=True), 1):
        drawings: list[Drawing] = []
        for metric in table.compared_metrics:
            drawings += _effect_drawings(design, metric, file, f"{index}-{metric.name}")
        listings = [_listing("Effects", effects_layout(table, design))]
        notes = " ".join(design.notes)
        yield DesignSection(f"design-{index}", design.title, notes, listings, drawings)


def file_names(designs: Iterable[DesignEffects]) -> list[str]:
    """A unique part of the file names of each design: `opt-a`, `opt-a-2` for `opt.a`, `opt a`."""
    used: list[str] = []
    for design in designs:
        name = slug = re.sub(r"[^a-z0-9]+", "-", design.group.lower()).strip("-")
        number = 1
        while name in used:
            number += 1
            name = f"{slug}-{number}"
        used.append(name)
    return used


def _effect_drawings(
    design: DesignEffects, metric: Metric, file: str, anchor: str
) -> Iterator[Drawing]:
    rows = effect_rows(design, metric)
    label = effect_label(metric)
    titles = {}
    for row in rows:
        titles[row.label] = f"{row.label}: {metric.difference_text(row.mean)} {metric.title}"
    if rows:
        yield Drawing(
            metric.title,
            f"effects-{file}-{metric.name}",
            f"effects-{anchor}",
            f"{design.title}: {label}",
            titles,
            partial(draw_intervals, rows, metric, label),
            better_side(metric),
        )
    if design.is_factorial and len(rows) >= MIN_EFFECTS:
        yield Drawing(
            f"{metric.title}, half-normal",
            f"half-normal-{file}-{metric.name}",
            f"half-normal-{anchor}",
            f"{design.title}: half-normal plot of the effects on {metric.title}",
            titles,
            partial(draw_half_normal, rows, metric),
            "Effects that are only noise are on a line through 0; diamonds are significant "
            "(Daniel, 1959).",
        )


def _tuning(table: Table) -> Iterator[DesignSection]:
    choices: dict[str, ChosenSettings] = {}
    labels: dict[str, None] = {}
    for row in table.rows:
        choice = row.recipe.tuned
        if choice:
            choices[row.label] = choice
            labels |= dict.fromkeys(candidate.label for candidate in choice.candidates)
    if not choices:
        return
    rows = []
    for label, choice in choices.items():
        rows.append((label, *_losses(choice, labels), number(choice.sensitivity, 3)))
    listing = Listing("Dev loss by candidate", ("row", *labels, "sensitivity"), rows)
    yield DesignSection("tuning", "Tuning", LOSSES_NOTE, [listing])


def _losses(choice: ChosenSettings, labels: Iterable[str]) -> list[str]:
    texts = dict.fromkeys(labels, "awaited")
    for candidate in choice.candidates:
        if candidate.loss is None:
            continue
        if math.isinf(candidate.loss):
            texts[candidate.label] = "diverged"
        else:
            mark = " *" if candidate.is_chosen else ""
            texts[candidate.label] = f"{candidate.loss:.3f}{mark}"
    return list(texts.values())


def _speed_ups(table: Table, curves: Sequence[Curve]) -> Iterator[DesignSection]:
    drawings = []
    for axis, ratios in speed_up_rows(curves_in_figures(table, curves)).items():
        name = AXES[axis]
        titles = {}
        for ratio in ratios:
            titles[ratio.label] = f"{ratio.label}: {number(ratio.mean, 2) or ratio.word}"
        drawings.append(
            Drawing(
                f"By {name}",
                f"speed-up-{axis}",
                f"speed-up-{axis}" if axis in COSTS else "",
                f"Effective speed-up of each row in {name}",
                titles,
                partial(draw_speed_ups, ratios, name),
            )
        )
    ratios_by_row = speed_ups(curves)
    all_ratios = chain.from_iterable(ratios.values() for ratios in ratios_by_row.values())
    heads = AXES
    if all(ratio.mean is None for ratio in all_ratios):  # the text is the same for every cost
        heads = {"step": "every cost"}
    rows = []
    for row, row_ratios in ratios_by_row.items():
        texts = [row_ratios[axis].text for axis in heads]
        if any(texts):
            rows.append((row, *texts))
    if rows:
        yield DesignSection(
            "speed-up",
            "Effective speed-up",
            "The cost at which base first reaches its final dev perplexity, divided by the cost "
            "at which a row first reaches it with the same seed: 2 if the row needs half. "
            "Geometric mean over seeds with its 95 % interval, uncorrected.",
            [Listing("Effective speed-up by cost", ("row", *heads.values()), rows)],
            drawings,
        )
