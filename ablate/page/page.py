"""The report: one HTML file with all results of a study, which fetches nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ablate.config.metrics import PPL, Metric
from ablate.formatting import duration, number, setting_text, signed
from ablate.page.figures import draw_curves, draw_intervals, draw_points
from ablate.page.html import Best, environment, table_context
from ablate.page.inline_svg import inline_svg
from ablate.page.points import COSTS, Interval, Panel, Point, intervals, panels, points
from ablate.page.samples import Sample
from ablate.page.summary import summary
from ablate.plotting import PALETTE, ShortNumbers
from ablate.report.curves import Curve
from ablate.report.layout import by_labels
from ablate.report.render import provenance
from ablate.report.table import Table
from ablate.store import Results


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


def page(
    table: Table,
    results: Results,
    curves: Sequence[Curve],
    samples: Sequence[Sample],
    attention: Attention | None = None,
) -> str:
    """Return the text of the page."""
    published = provenance(table, results)
    differences = [drawing for metric in (table.main, table.perplexity) for drawing in _differences(table, metric)]
    return environment().get_template("page.html").render(
        study=table.study,
        summary=summary(table),
        **table_context(table, by_labels(table, Best)),
        differences=differences,
        intervals_shown=any(verdict.seed_test for row in table.rows for verdict in row.verdicts.values()),
        curves=list(_curves(panels(curves))),
        costs=list(_costs(table)),
        samples=samples,
        attention=attention,
        **_settings(table),
        origins=Listing("How the numbers were made", ("what", "value"), list(_origins(table, published))),
        runs=_runs(published),
        palette=PALETTE,
    )  # fmt: skip


def _differences(table: Table, metric: Metric) -> Iterator[Drawing]:
    rows = intervals(table, metric)
    if any(row.mean is not None for row in rows):
        description = f"Difference from base in {metric.title} of each row, with its 95 % interval"
        titles = {row.row: _interval_title(row, metric) for row in rows}
        svg = inline_svg(draw_intervals(rows, metric), f"differences-{metric.name}", description, titles)
        yield Drawing(metric.title, svg, f"Better is to the {'right' if metric.more_is_better else 'left'}.")


def _interval_title(row: Interval, metric: Metric) -> str:
    text = f"{row.row}: {signed(row.mean, metric.digits) or 'no result yet'}"
    if row.low is not None and row.high is not None:
        text += f" [{signed(row.low, metric.digits)}, {signed(row.high, metric.digits)}]"
    return f"{text} {metric.title}, {row.word}" if row.word and row.mean is not None else text


def _curves(groups: Sequence[Panel]) -> Iterator[Drawing]:
    for index, panel in enumerate(groups):
        titles = {curve.row: _curve_title(curve) for curve in panel.curves}
        description = f"{PPL.title} by step of {', '.join(curve.row for curve in panel.curves)}"
        figure = draw_curves([panel], of=groups)
        yield Drawing(panel.title, inline_svg(figure, f"curves-{index}", description, titles))


def _curve_title(curve: Curve) -> str:
    last = curve.mean[-1:] or next(iter(curve.by_seed.values()))[-1:]
    return "".join(f"{curve.row}: {PPL.title} {value:.{PPL.digits}f} at step {step}" for step, value in last)


def _costs(table: Table) -> Iterator[Drawing]:
    for cost, name in COSTS.items():
        rows = points(table, cost)
        if rows:
            titles = {row.row: _point_title(row, table.main, name) for row in rows}
            description = f"{table.main.title} of each row against {name}"
            svg = inline_svg(draw_points(rows, table.main, name), f"cost-{cost}", description, titles)
            yield Drawing(f"By {name}", svg)


def _point_title(row: Point, metric: Metric, cost: str) -> str:
    return f"{row.row}: {number(row.score, metric.digits)} {metric.title}, {cost} {ShortNumbers()(row.cost)}"


def _settings(table: Table) -> dict[str, Listing]:
    base = table.rows[0].row.config.model_dump()
    data = table.study.data.model_dump(exclude={"folder"})
    changes = [
        (row.row.label, ", ".join(f"{name}={setting_text(value)}" for name, value in row.row.changed.items()))
        for row in table.rows[1:]
    ]
    heads = ("field", "value")
    return {
        "changes": Listing("What each row changes", ("row", "changes"), changes),
        "base_fields": Listing("Base", heads, [(name, setting_text(value)) for name, value in base.items()]),
        "data_fields": Listing("Data", heads, [(name, setting_text(value)) for name, value in data.items()]),
    }


def _origins(table: Table, published: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield signatures, corpora, code and machines."""
    for name, signatures in table.signatures.items():
        yield from ((table.study.task.metrics[name].title, signature) for signature in signatures)
    yield from (("corpus", corpus) for corpus in published["corpora"])
    for execution in published["carried_out"]:
        code, machine = execution.get("ablate", {}), execution["machine"]
        if code:
            changed = ", changed since" if code.get("dirty") else ""
            revision = f" ({code['revision'][:12]}{changed})" if code.get("revision") else ""
            yield "code", f"ablate {code['version']}{revision}, Python {execution['python']}"
            yield "packages", ", ".join(f"{name} {version}" for name, version in execution["packages"].items())
        where = f"{execution['device']}, {execution['threads']} threads"
        yield "machine", f"{where}; {machine['processor']}, {machine['cores']} cores"


def _runs(published: dict[str, Any]) -> Listing:
    rows = [
        (id, run["seed"], run["steps"], duration(run["seconds"]), (run["weights"] or {}).get("sha256", "")[:16])
        for id, run in published["runs"].items()
    ]
    return Listing("Runs", ("run", "seed", "steps", "time", "weights (SHA-256)"), rows)
