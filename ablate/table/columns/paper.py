"""Columns of the paper's numbers for the same changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ablate.formatting import number
from ablate.paper import PaperTable
from ablate.stats.metrics import Metric
from ablate.table.agreement import agreement_lines, paper_metrics
from ablate.table.columns.column import Column, Form
from ablate.table.experiment import Setup
from ablate.table.layout import REQUESTED
from ablate.table.table import Table, TableRow


def paper_columns(table: Table, setup: Setup, form: Form) -> Iterator[Column]:
    """Yield the paper's numbers; people see them on request."""
    names = paper_metrics(setup.paper) if form.with_paper else []
    yield Column(
        "paper",
        value=lambda row: row.recipe.paper and row.recipe.paper.scores,
        legend=partial(_legend, table, setup),
        parts={f"paper_{name}": (name,) for name in names},
    )
    if form.with_paper:
        for name in names:
            metric = table.experiment.metrics[name]
            head = f"paper\n{metric.title}"
            yield Column("", head, text=partial(_score, metric), priority=REQUESTED)
        yield Column("", "paper\nparams", text=_params, priority=REQUESTED)


def _score(metric: Metric, row: TableRow) -> str:
    paper = row.recipe.paper
    scores = paper.scores if paper else {}
    return number(scores.get(metric.name), metric.digits)


def _params(row: TableRow) -> str:
    paper = row.recipe.paper
    return number(paper.params_millions if paper else None, 0)


def _legend(table: Table, setup: Setup, form: Form) -> Iterator[str]:
    if not form.with_paper:
        return
    paper = setup.paper
    if paper is None:
        yield f"paper: has no table for task {setup.task}."
        return
    yield (
        f"paper: {paper.title}'s row with the same change to its base, of sizes by the same factor "
        f"({paper.measured_on})."
    )
    yield from _published(paper)
    if not setup.is_as_paper:
        yield (
            "This study's base or corpus is not the paper's: compare the order of rows, not their "
            "values."
        )
    if len(paper.rows) > 1:
        yield from agreement_lines(table)


def _published(paper: PaperTable) -> Iterator[str]:
    """Yield the published systems, with a line for each kind of training data."""
    systems: dict[str, list[str]] = {}
    for published in paper.published:
        systems.setdefault(published.training, []).append(f"{published.system} {published.score}")
    for kind, scores in systems.items():
        yield f"{paper.title}, {kind}: {', '.join(scores)}."
