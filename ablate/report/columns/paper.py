"""The numbers of the paper for the same changes."""

from __future__ import annotations

from ablate.analysis.agreement import agreement_lines
from ablate.analysis.table import Table, paper_metrics
from ablate.formatting import number
from ablate.paper import PaperTable
from ablate.report.columns.form import Form, Section
from ablate.report.layout import REQUESTED, Column


def _paper_columns(table: Table, form: Form) -> list[Column]:
    """The paper's numbers for the same changes."""
    if not form.with_paper:
        return []
    rows = [row.paper for row in table.rows]
    columns = []
    for name in paper_metrics(table):
        metric = table.study.task.metrics[name]
        cells = tuple(number(row.scores.get(name) if row else None, metric.digits) for row in rows)
        columns.append(Column(f"paper\n{metric.title}", True, cells, priority=REQUESTED))
    params = tuple(number(row.params_millions if row else None, 0) for row in rows)
    return [*columns, Column("paper\nparams", True, params, priority=REQUESTED)]


def _paper_legend(table: Table, form: Form) -> list[str]:
    if not form.with_paper:
        return []
    paper = table.study.task.paper
    if paper is None:
        return [f"paper: has no table for task {table.study.task.name}."]
    lines = [
        f"paper: {paper.title}'s row with the same change to its base ({paper.measured_on}).",
        *_published(paper),
    ]
    base = table.study.base.config
    shape = ("n_layers", "d_model", "d_ff")
    if (
        any(getattr(base, name) != paper.base[name] for name in shape)
        or table.study.data.corpus != paper.corpus
    ):
        lines.append(
            "This study's base or corpus is not the paper's: compare the order of rows, not their "
            "values."
        )
    return [*lines, *agreement_lines(table)] if len(paper.rows) > 1 else lines


def _published(paper: PaperTable) -> list[str]:
    """The systems that a table of the paper compares, a line for each kind of training data."""
    kinds = dict.fromkeys(each.training for each in paper.published)
    lines = []
    for kind in kinds:
        systems = (
            f"{each.system} {each.score}" for each in paper.published if each.training == kind
        )
        lines.append(f"{paper.title}, {kind}: {', '.join(systems)}.")
    return lines


PAPER = Section(_paper_columns, _paper_legend)
