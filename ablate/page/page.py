"""The report: one HTML file with all results of a study, which fetches nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ablate.analysis.curves import AXES, Curve
from ablate.analysis.results import predictions_of
from ablate.analysis.table import Table
from ablate.config.inactive import inactive_fields
from ablate.config.metrics import PPL, Metric
from ablate.formatting import duration, number, plural, scaled, setting_text
from ablate.page.designs import Drawing, Listing, design_sections
from ablate.page.figures import draw_curves, draw_intervals, draw_points
from ablate.page.html import Best, environment, table_context
from ablate.page.points import (
    COSTS,
    Interval,
    Panel,
    Point,
    alike,
    equal_costs,
    intervals,
    panels,
    points,
    within_axis,
)
from ablate.plotting import PALETTE, inline_svg
from ablate.report.columns import by_labels
from ablate.report.conclusion import conclusion
from ablate.report.publish import TableProvenance, provenance_of
from ablate.report.render import comma_separated
from ablate.store import Results
from ablate.store.records import Provenance

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


@dataclass(frozen=True)
class Attention:
    """The attention weights of a run for a sentence, drawn as SVG."""

    row: str
    run: str
    sentence: str
    drawing: bytes

    @property
    def base64(self) -> str:
        """The drawing as the data of a `data:` address."""
        return base64.b64encode(self.drawing).decode()


def page(
    table: Table,
    results: Results,
    curves: Sequence[Curve],
    samples: Sequence[Sample],
    attention: Attention | None = None,
) -> str:
    """Return the text of the page."""
    published = provenance_of(table, results)
    runs = _runs(table, published)
    return _page(
        table,
        {run.row: run.anchor for run in runs if run.anchor},
        curves=_curves_by_axis(curves),
        designs=design_sections(table, curves),
        costs=list(_costs(table)),
        equal_costs=equal_costs(table),
        samples=samples,
        attention=attention,
        **_settings(table),
        origins=Listing(
            "How the numbers were made", ("what", "value"), list(_origins(table, published))
        ),
        runs=runs,
    )


def page_of_scores(table: Table) -> str:
    """Return the text of the page of scores that were measured elsewhere: conclusion, table and
    differences from base.
    """
    without = ("curves", "designs", "costs", "equal_costs", "samples", "attention")
    return _page(table, {}, **dict.fromkeys((*without, "changes", "origins"), ()))


def _page(table: Table, links: Mapping[str, str], **sections: Any) -> str:
    metrics = table.compared
    return (
        environment()
        .get_template("page.html")
        .render(
            study=table.study,
            summary=conclusion(table),
            **table_context(table, by_labels(table, Best), is_page=True, links=links),
            csv=base64.b64encode(comma_separated(table).encode()).decode(),
            differences=[drawing for metric in metrics for drawing in _differences(table, metric)],
            intervals_shown=any(
                verdict.seed_test for row in table.rows for verdict in row.verdicts.values()
            ),
            palette=PALETTE,
            **sections,
        )
    )


def _differences(table: Table, metric: Metric) -> Iterator[Drawing]:
    rows = intervals(table, metric)
    if any(row.mean is not None for row in rows):
        description = f"Difference from base in {metric.title} of each row, with its 95 % interval"
        titles = {row.row: _interval_title(row, metric) for row in rows}
        svg = inline_svg(
            draw_intervals(rows, metric), f"differences-{metric.name}", description, titles
        )
        note = f"Better is to the {'right' if metric.more_is_better else 'left'}."
        off = sum(row.mean is not None for row in rows) - len(within_axis(rows))
        yield Drawing(
            metric.title,
            svg,
            f"{note} Off the axis: {plural(off, 'row')}, in numbers." if off else note,
        )


def _interval_title(row: Interval, metric: Metric) -> str:
    text = f"{row.row}: {metric.difference_text(row.mean) or 'no result yet'}"
    if row.low is not None and row.high is not None:
        text += f" {metric.interval_text(row.low, row.high)}"
    return f"{text} {metric.title}, {row.word}" if row.word and row.mean is not None else text


def _curves_by_axis(curves: Sequence[Curve]) -> list[tuple[str, list[Drawing]]]:
    """The learning curves along each axis that has some, with the axis' name."""
    found = [
        (AXES[axis], list(_curves(panels([curve.by(axis) for curve in curves]), axis)))
        for axis in AXES
    ]
    return [(name, drawings) for name, drawings in found if drawings]


def _curves(groups: Sequence[Panel], axis: str) -> Iterator[Drawing]:
    for index, panel in enumerate(groups):
        titles = {curve.row: _curve_title(curve) for curve in panel.curves}
        description = (
            f"{PPL.title} by {AXES[axis]} of {', '.join(curve.row for curve in panel.curves)}"
        )
        figure = draw_curves([panel], of=groups)
        name = f"curves-{index}" if axis == "step" else f"curves-{axis}-{index}"
        note = "" if panel in alike(groups) else "Its perplexity has a scale of its own."
        yield Drawing(panel.title, inline_svg(figure, name, description, titles), note)


def _curve_title(curve: Curve) -> str:
    """The values of a curve as text: at most eight evaluations, spread evenly, and the last one."""
    points = curve.mean or next(iter(curve.points.values()))
    shown = [*points[:-1][:: max(1, -(-len(points) // 8))], points[-1]]
    values = [f"{value:.{PPL.digits}f} at {_amount(cost, curve.axis)}" for cost, value in shown]
    return f"{curve.row}, {PPL.title}: {', '.join(values)}"


def _amount(cost: float, axis: str) -> str:
    return f"step {cost}" if axis == "step" else f"{scaled(cost, '').strip()} {AXES[axis]}"


def _costs(table: Table) -> Iterator[Drawing]:
    for cost, name in COSTS.items():
        rows = points(table, cost)
        if rows:
            titles = {row.row: _point_title(row, table.main, name) for row in rows}
            description = f"{table.main.title} of each row against {name}"
            svg = inline_svg(
                draw_points(rows, table.main, name), f"cost-{cost}", description, titles
            )
            yield Drawing(f"By {name}", svg)


def _point_title(row: Point, metric: Metric, cost: str) -> str:
    return (
        f"{row.row}: {number(row.score, metric.digits)} {metric.title}, {cost} "
        f"{scaled(row.cost, '').strip()}"
    )


def _settings(table: Table) -> dict[str, Listing]:
    config = table.rows[0].row.config
    unused = {**dict(inactive_fields(config, config)), **table.study.task.unused_fields}
    base = config.model_dump(exclude=set(unused))
    data = table.study.data.model_dump(exclude={"folder"})
    changes = [
        (
            row.row.label,
            ", ".join(f"{name}={setting_text(value)}" for name, value in row.row.changed.items()),
        )
        for row in table.rows[1:]
    ]
    heads = ("field", "value")
    return {
        "changes": Listing("What each row changes", ("row", "changes"), changes),
        "base_fields": Listing(
            "Base", heads, [(name, setting_text(value)) for name, value in base.items()]
        ),
        "data_fields": Listing(
            "Data", heads, [(name, setting_text(value)) for name, value in data.items()]
        ),
    }


def _origins(table: Table, published: TableProvenance) -> Iterator[tuple[str, str]]:
    """Yield signatures, corpora, code and machines."""
    for name, signatures in table.signatures.items():
        yield from ((table.study.task.metrics[name].title, signature) for signature in signatures)
    yield from (("corpus", corpus) for corpus in published.corpora)
    made = (pair for one in published.provenances if one for pair in _made_with(one))
    # Once each: runs of several revisions often share packages and machine.
    yield from sorted(
        dict.fromkeys(made), key=lambda pair: ("code", "packages", "machine").index(pair[0])
    )


def _made_with(made: Provenance) -> Iterator[tuple[str, str]]:
    code, machine = made.ablate, made.machine
    if code:
        changed = ", changed since" if code.dirty else ""
        revision = f" ({code.revision[:12]}{changed})" if code.revision else ""
        yield "code", f"ablate {code.version}{revision}, Python {made.python}"
        yield "packages", ", ".join(f"{name} {version}" for name, version in made.packages.items())
    where = f"{made.device}, {plural(made.threads, 'thread')}"
    yield "machine", f"{where}; {machine.processor}, {plural(machine.cores, 'core')}"


@dataclass(frozen=True)
class RunLine:
    """A run in the page's list of runs.

    anchor: of the first run of a row; empty for its other runs.
    cells: id, state, steps, time and the hash of the weights.
    """

    row: str
    seed: int
    anchor: str
    cells: tuple[object, ...]


def _runs(table: Table, published: TableProvenance) -> list[RunLine]:
    """Every run of every row; rows that differ only in decoding share runs."""
    known = {run.id: run for run in published.runs}
    lines = []
    for index, row in enumerate(table.rows):
        for place, one in enumerate(row.runs):
            made = known.get(one.run.id)
            what = (
                (
                    made.steps,
                    duration(made.seconds),
                    made.weights.sha256[:16] if made.weights else "",
                )
                if made
                else ()
            )
            anchor = "" if place else f"runs-{index}"
            lines.append(
                RunLine(
                    row.row.label,
                    one.run.seed,
                    anchor,
                    (one.run.id, one.state, *(what or ("", "", ""))),
                )
            )
    return lines


@dataclass(frozen=True)
class Sample:
    """One item of the test set.

    number: of the item, from 1.
    given: (name, text) of the input and of the reference.
    predictions: (row label, text) of each row.
    scores: of each prediction alone, in `metric` and with its digits; empty if the task has none.
    """

    number: int
    given: tuple[tuple[str, str], ...]
    predictions: tuple[tuple[str, str], ...]
    scores: tuple[str, ...] = ()
    metric: str = ""

    @property
    def reference(self) -> str | None:
        """The text that a prediction is compared with word by word, if the task has one."""
        return dict(self.given).get("reference")


def samples(table: Table, results: Results, corpus: Corpus, count: int) -> list[Sample]:
    """Return `count` items of the test split, spread evenly over it, with the predictions of each
    row's first seed.

    Of a task that generates texts, the samples are those, and have nothing given. Rows without a
    prediction for every item are left out. Each prediction has its score in the main metric, if the
    task scores single items in it.
    """
    decoded = ((row.row.label, row.runs[0].decoding) for row in table.rows)
    generated = {label: decoding.generated for label, decoding in decoded if decoding is not None}
    if any(generated.values()):
        return [
            Sample(
                i + 1,
                (),
                tuple((label, each[i]) for label, each in generated.items() if i < len(each)),
            )
            for i in range(min(count, max(map(len, generated.values()))))
        ]
    task, total = table.study.task, table.study.task.n_predictions(corpus)
    texts: dict[str, Sequence[str]] = {}
    for row in table.rows:
        lines = task.of_items(predictions_of(row.runs[0], results))
        if len(lines) == total:
            texts[row.row.label] = lines
    # A set, because more samples than items may be asked for.
    picked = sorted({total * i // count for i in range(count)}) if total and texts else []
    has_scores = picked and task.scores_items(table.of_items)
    scores = (
        [task.measure_items(table.of_items.name, lines, corpus) for lines in texts.values()]
        if has_scores
        else []
    )
    return [
        Sample(
            item.number,
            item.texts,
            tuple((label, lines[i]) for label, lines in texts.items()),
            tuple(number(of_row[i], table.of_items.digits) for of_row in scores),
            table.of_items.title if scores else "",
        )
        for i, item in zip(picked, task.samples(corpus, picked), strict=True)
    ]
