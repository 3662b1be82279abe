"""The numbers of the paper for the same changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ablate.analysis.agreement import agreement_lines
from ablate.analysis.table import Table, TableRow, paper_metrics
from ablate.formatting import number
from ablate.paper import PaperTable
from ablate.stats.metrics import Metric
from ablate.table.columns.column import Column, Form
from ablate.table.layout import REQUESTED


def paper_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the paper's numbers; read by people only where they are asked for."""
    names = paper_metrics(table) if form.with_paper else []
    yield Column(
        "paper",
        value=lambda row: row.paper and row.paper.scores,
        legend=partial(_legend, table),
        parts={f"paper_{name}": (name,) for name in names},
    )
    if form.with_paper:
        for name in names:
            metric = table.study.task.metrics[name]
            head = f"paper\n{metric.title}"
            yield Column("", head, text=partial(_score, metric), priority=REQUESTED)
        yield Column("", "paper\nparams", text=_params, priority=REQUESTED)


def _score(metric: Metric, row: TableRow) -> str:
    scores = row.paper.scores if row.paper else {}
    return number(scores.get(metric.name), metric.digits)


def _params(row: TableRow) -> str:
    return number(row.paper.params_millions if row.paper else None, 0)


def _legend(table: Table, form: Form) -> Iterator[str]:
    if not form.with_paper:
        return
    paper = table.study.task.paper
    if paper is None:
        yield f"paper: has no table for task {table.study.task.name}."
        return
    yield (
        f"paper: {paper.title}'s row with the same change to its base, of sizes by the same factor "
        f"({paper.measured_on})."
    )
    yield from _published(paper)
    base = table.study.base.config
    is_paper_s = all(getattr(base, name) == paper.base[name] for name in _SHAPE)
    if not is_paper_s or table.study.data.corpus != paper.corpus:
        yield (
            "This study's base or corpus is not the paper's: compare the order of rows, not their "
            "values."
        )
    if len(paper.rows) > 1:
        yield from agreement_lines(table)


_SHAPE = ("n_layers", "d_model", "d_ff")


def _published(paper: PaperTable) -> Iterator[str]:
    """Yield the systems that the paper compares, a line for each kind of training data."""
    systems: dict[str, list[str]] = {}
    for published in paper.published:
        systems.setdefault(published.training, []).append(f"{published.system} {published.score}")
    for kind, scores in systems.items():
        yield f"{paper.title}, {kind}: {', '.join(scores)}."
