"""Sections of the page after its main tables: test sizes, sizes of base, effects of designs, tuning
and effective speed-up; and the files of all figures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count

from ablate.formatting import number
from ablate.page.drawings import (
    Drawing,
    better_side,
    cost_drawings,
    curve_drawings,
    difference_drawings,
)
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
    "chosen, and marked. Sensitivity: mean loss minus the smallest loss; losses above ln V count "
    "as ln V (arXiv 2309.14322)."
)


@dataclass(frozen=True)
class Listing:
    """A plain table. The first cell of a row is its title."""

    caption: str
    heads: tuple[str, ...]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Section:
    """A section of the page: tables, then figures.

    id: anchor of the section.
    note: explanation below the title.
    drawings: figures of the section.
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
    drawings = list(difference_drawings(table))
    for _, drawings_of_axis in curve_drawings(table, curves):
        drawings += drawings_of_axis
    drawings += cost_drawings(table)
    for section in further_sections(table, curves):
        drawings += section.drawings
    files = {}
    for drawing in drawings:
        if drawing.is_file:
            figure = drawing.draw()
            for suffix in formats:
                files[f"{drawing.name}.{suffix}"] = render(figure, suffix)
    return files


def further_sections(table: Table, curves: Sequence[Curve]) -> list[Section]:
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


def _test_sizes(table: Table) -> Iterator[Section]:
    lines, size_name = lines_over_test_sizes(table)
    if not lines:
        return
    metric = table.main_metric
    label = f"{size_name} of test items"
    tooltips = {}
    for line in lines:
        means = [f"{number(scores.mean, metric.digits)} at {x}" for x, scores in line.points]
        tooltips[line.label] = f"{line.name}: {', '.join(means)}"
    drawing = Drawing(
        f"over-{size_name}-{metric.name}",
        partial(draw_lines, lines, label, f"{metric.title} ({metric.side})"),
        title=metric.title,
        description=f"{metric.title} over the {label}",
        tooltips=tooltips,
    )
    note = "Each row is one training. Thin lines are its seeds, the thick line is their mean."
    yield Section("test-sizes", f"Over the {label}", note, drawings=[drawing])


def _ladders(table: Table) -> Iterator[Section]:
    listings = []
    drawings = []
    note = ""
    for ladder in ladders(table):
        layout = ladder_layout(ladder)
        note = note or " ".join(layout.legend)  # of the main metric, which is the first
        listings.append(_listing(f"Δ{ladder.metric.title}", layout))
        if ladder.has_differences:
            drawings.append(_sizes_drawing(ladder))
    if listings:
        yield Section("sizes", "Over sizes", note, listings, drawings)


def _sizes_drawing(ladder: Ladder) -> Drawing:
    metric = ladder.metric
    tooltips = {}
    for row in ladder.rows:
        texts = [metric.difference_text(rung.difference.mean) or "?" for rung in row.rungs]
        tooltips[row.name] = f"{row.name}: {', '.join(texts)}"
    return Drawing(
        f"sizes-{metric.name}",
        partial(draw_sizes, ladder),
        title=f"Δ{metric.title}",
        description=(
            f"Difference from base in {metric.title} of each row over the parameters of base"
        ),
        tooltips=tooltips,
    )


def _effects(table: Table) -> Iterator[Section]:
    designs = design_effects(table)
    slugs = unique_slugs(design.group for design in designs)
    for index, (design, slug) in enumerate(zip(designs, slugs, strict=True), 1):
        drawings: list[Drawing] = []
        for metric in table.compared_metrics:
            drawings += _effect_drawings(design, metric, f"{slug}-{metric.name}")
        listings = [_listing("Effects", effects_layout(table, design))]
        notes = " ".join(design.notes)
        yield Section(f"design-{index}", design.title, notes, listings, drawings)


def unique_slugs(groups: Iterable[str]) -> list[str]:
    """A part of a file name for each group, each different: `opt-a`, `opt-a-2` for `opt.a`,
    `opt a`.
    """
    slugs: list[str] = []
    for group in groups:
        slug = re.sub(r"[^a-z0-9]+", "-", group.lower()).strip("-")
        names = chain([slug], (f"{slug}-{n}" for n in count(2)))
        slugs.append(next(name for name in names if name not in slugs))
    return slugs


def _effect_drawings(design: DesignEffects, metric: Metric, name: str) -> Iterator[Drawing]:
    rows = effect_rows(design, metric)
    label = effect_label(metric)
    tooltips = {}
    for row in rows:
        tooltips[row.label] = f"{row.label}: {metric.difference_text(row.mean)} {metric.title}"
    if rows:
        yield Drawing(
            f"effects-{name}",
            partial(draw_intervals, rows, metric, label),
            title=metric.title,
            description=f"{design.title}: {label}",
            tooltips=tooltips,
            caption=better_side(metric),
        )
    if design.is_factorial and len(rows) >= MIN_EFFECTS:
        yield Drawing(
            f"half-normal-{name}",
            partial(draw_half_normal, rows, metric),
            title=f"{metric.title}, half-normal",
            description=f"{design.title}: half-normal plot of the effects on {metric.title}",
            tooltips=tooltips,
            caption=(
                "Effects that are only noise are on a line through 0; diamonds are significant "
                "(Daniel, 1959)."
            ),
        )


def _tuning(table: Table) -> Iterator[Section]:
    choices: dict[str, ChosenSettings] = {}
    labels: dict[str, None] = {}  # an ordered set
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
    yield Section("tuning", "Tuning", LOSSES_NOTE, [listing])


def _losses(choice: ChosenSettings, labels: Iterable[str]) -> list[str]:
    """A cell for each candidate. The rows of a study have the same candidates, so a label without a
    loss is a candidate whose runs are missing.
    """
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


def _speed_ups(table: Table, curves: Sequence[Curve]) -> Iterator[Section]:
    drawings = []
    for axis, ratios in speed_up_rows(curves_in_figures(table, curves)).items():
        name = AXES[axis]
        tooltips = {}
        for ratio in ratios:
            tooltips[ratio.label] = f"{ratio.label}: {number(ratio.mean, 2) or ratio.word}"
        drawings.append(
            Drawing(
                f"speed-up-{axis}",
                partial(draw_speed_ups, ratios, name),
                title=f"By {name}",
                description=f"Effective speed-up of each row in {name}",
                tooltips=tooltips,
                is_on_page=axis in COSTS,
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
        yield Section(
            "speed-up",
            "Effective speed-up",
            "Cost of base divided by the cost of the row, each up to the step at which the "
            "training first reaches the final dev perplexity of base. A row with a speed-up of 2 "
            "needs half of base's cost. Geometric mean over seeds, with a 95 % interval that is "
            "not corrected for the number of rows.",
            [Listing("Effective speed-up by cost", ("row", *heads.values()), rows)],
            drawings,
        )
