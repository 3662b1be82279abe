"""The columns of the results table in their order, and the layouts that people read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from ablate.analysis.table import Table
from ablate.config.resolve import SETTINGS
from ablate.report.columns.column import Column, Form, Mark, text_columns
from ablate.report.columns.cost import cost_columns
from ablate.report.columns.differences import difference_columns, verdict_columns
from ablate.report.columns.paper import paper_columns
from ablate.report.columns.rows import label_column, row_columns, varied_settings
from ablate.report.columns.scores import score_columns
from ablate.report.layout import FURTHER, REQUESTED, Layout, TextColumn, fitting, folded


def columns_of(table: Table, form: Form) -> tuple[Column, ...]:
    """Every column, from left to right; the legend and the scripts' formats have the same order."""
    if table.is_measured_elsewhere:
        return (
            label_column(),
            *score_columns(table, form),
            *difference_columns(table, form),
            *verdict_columns(table, form),
        )
    return (
        *row_columns(table, form),
        *score_columns(table, form),
        *difference_columns(table, form),
        *cost_columns(table, form),
        *paper_columns(table, form),
        *verdict_columns(table, form),
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
    form = Form(mark, against_paper, with_cost, settings)
    columns = columns_of(table, form)
    shown = text_columns(columns, table)
    return Layout(tuple(shown), _legend(columns, form, shown))


def terminal_layout(
    table: Table, mark: Mark, against_paper: bool, with_cost: bool = False, width: int | None = None
) -> Layout:
    """Rows by label, the most important columns first, as many as fit into `width`; all of them
    without a width.

    Columns that do not fit are named in the first line of the legend.
    """
    form = Form(mark, against_paper, with_cost, varied_settings(table), labels=True)
    declared = columns_of(table, form)
    columns = sorted(text_columns(declared, table), key=attrgetter("priority"))
    if width is None:
        return Layout(tuple(columns), _legend(declared, form, columns))
    shown = fitting(columns, width)
    legend = _legend(declared, form, shown)
    names = {column.name for column in shown}
    left_out = [column.name for column in columns if column.name not in names]
    if left_out:
        command = "judge" if table.is_measured_elsewhere else "table"
        line = f"Left out at {width} columns: {', '.join(left_out)}"
        legend = (f"{line}; `ablate {command} --wide` shows all.", *legend)
    return Layout(tuple(folded(shown, width)), legend)


def by_labels(table: Table, mark: Mark) -> Layout:
    """Every column but the settings, which labels name: for a table that can be sorted."""
    form = Form(mark, with_paper=False, labels=True)
    declared = columns_of(table, form)
    columns = []
    for column in text_columns(declared, table):
        if column.priority == REQUESTED:  # not asked for here
            column = replace(column, priority=FURTHER)
        if any(column.cells):
            columns.append(column)
    columns.sort(key=attrgetter("priority"))
    return Layout(tuple(columns), _legend(declared, form, columns))


def _legend(declared: Sequence[Column], form: Form, shown: Sequence[TextColumn]) -> tuple[str, ...]:
    """The lines that explain the shown columns, in the order of the declared ones."""
    left_out = {column.name for column in declared if column.text}
    left_out -= {column.name for column in shown}
    form = replace(form, left_out=frozenset(left_out))
    lines: list[str] = []
    for column in declared:
        if form.shows(column.name):
            lines += column.legend(form)
    return tuple(lines)
