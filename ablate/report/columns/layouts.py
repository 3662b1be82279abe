"""The columns of the results table in their order, and the layouts that people read."""

from __future__ import annotations

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
from ablate.report.layout import CHOSEN, FURTHER, REQUESTED, Layout, fitting, folded
from ablate.study.choice import KEY


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
    return Layout(tuple(text_columns(columns, table)), _legend(columns, form))


def terminal_layout(
    table: Table, mark: Mark, against_paper: bool, with_cost: bool = False, width: int | None = None
) -> Layout:
    """Rows by label, the most important columns first, as many as fit into `width`; all of them
    without a width.

    Columns that do not fit are named in the first line of the legend.
    """
    form = Form(mark, against_paper, with_cost, varied_settings(table), labels=True)
    declared = tuple(map(_ranked, columns_of(table, form)))
    columns = sorted(text_columns(declared, table), key=attrgetter("priority"))
    if width is None:
        return Layout(tuple(columns), _legend(declared, form))
    shown = fitting(columns, width)
    left_out = [column.name for column in columns if column not in shown]
    legend = _legend(declared, replace(form, left_out=frozenset(left_out)))
    if left_out:
        command = "judge" if table.is_measured_elsewhere else "table"
        line = f"Left out at {width} columns: {', '.join(left_out)}"
        legend = (f"{line}; `ablate {command} --wide` shows all.", *legend)
    return Layout(tuple(folded(shown, width)), legend)


def _ranked(column: Column) -> Column:
    """What trials or `match` have chosen tells rows apart, and stays longer than their size."""
    return replace(column, priority=CHOSEN) if column.key in (KEY, "matched") else column


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
    return Layout(tuple(columns), _legend(declared, form))


def _legend(columns: tuple[Column, ...], form: Form) -> tuple[str, ...]:
    lines: list[str] = []
    for column in columns:
        lines += column.legend(form)
    return tuple(lines)
