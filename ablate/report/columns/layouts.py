"""The layouts of the results table: which sections they have, in which order."""

from __future__ import annotations

from dataclasses import replace

from ablate.analysis.table import Table
from ablate.config.resolve import SETTINGS
from ablate.report.columns.cost import COST, MATCHED, PARAMETERS, TUNED
from ablate.report.columns.differences import DIFFERENCES, VERDICTS
from ablate.report.columns.form import Form, Mark
from ablate.report.columns.paper import PAPER
from ablate.report.columns.rows import ROWS
from ablate.report.columns.scores import SCORES
from ablate.report.columns.settings import varied_settings
from ablate.report.columns.state import PENDING, STATE
from ablate.report.layout import FURTHER, REQUESTED, Column, Layout, fitting, folded

# From left to right; the legend has the same order.
SECTIONS = (
    ROWS,
    SCORES,
    DIFFERENCES,
    PENDING,
    PARAMETERS,
    MATCHED,
    TUNED,
    COST,
    PAPER,
    VERDICTS,
    STATE,
)


def paper_layout(
    table: Table,
    mark: Mark,
    against_paper: bool,
    with_cost: bool = False,
    *,
    every_setting: bool = True,
) -> Layout:
    """The layout of the paper; without `every_setting`, settings that no row changes are in the
    legend.
    """
    settings = SETTINGS if every_setting else varied_settings(table)
    return _layout(table, Form(mark, against_paper, with_cost, settings))


def terminal_layout(
    table: Table, mark: Mark, against_paper: bool, with_cost: bool = False, width: int | None = None
) -> Layout:
    """Rows by label, the most important columns first, as many as fit into `width`; all of them
    without a width.

    Columns that do not fit are named in the first line of the legend.
    """
    form = Form(mark, against_paper, with_cost, varied_settings(table), labels=True)
    columns = sorted(_columns(table, form), key=lambda column: column.priority)
    if width is None:
        return Layout(tuple(columns), _legend(table, form))
    shown = fitting(columns, width)
    left_out = [column.name for column in columns if column not in shown]
    form = replace(form, left_out=frozenset(left_out))
    legend = _legend(table, form)
    if left_out:
        line = (
            f"Left out at {width} columns: {', '.join(left_out)}; `ablate table --wide` shows all."
        )
        legend = (line, *legend)
    return Layout(tuple(folded(shown, width)), legend)


def by_labels(table: Table, mark: Mark) -> Layout:
    """Every column but the settings, for a table whose rows can be sorted: their labels name the
    settings.
    """
    form = Form(mark, with_paper=False, with_cost=True, settings=(), labels=True)
    filled = [
        replace(column, priority=FURTHER)
        if column.priority == REQUESTED
        else column  # not asked for here
        for column in _columns(table, form)
        if any(column.cells)
    ]
    return Layout(tuple(sorted(filled, key=lambda column: column.priority)), _legend(table, form))


def _layout(table: Table, form: Form) -> Layout:
    return Layout(tuple(_columns(table, form)), _legend(table, form))


def _columns(table: Table, form: Form) -> list[Column]:
    return [column for section in SECTIONS for column in section.columns(table, form)]


def _legend(table: Table, form: Form) -> tuple[str, ...]:
    return tuple(line for section in SECTIONS for line in section.legend(table, form))
