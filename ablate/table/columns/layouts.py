"""The columns of the results table in their order, and the layouts that people read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from ablate.table.columns.column import Column, Form, Mark, text_columns
from ablate.table.columns.cost import cost_columns
from ablate.table.columns.differences import (
    difference_columns,
    verdict_column,
    verdict_columns,
)
from ablate.table.columns.paper import paper_columns
from ablate.table.columns.rows import label_column, row_columns, varied_settings
from ablate.table.columns.scores import score_columns
from ablate.table.layout import (
    FURTHER,
    JOINT_VERDICT,
    OTHER_SCORE,
    REQUESTED,
    SCORE,
    SETTING,
    VERDICT,
    Layout,
    TextColumn,
    fitting,
    folded,
    width_of,
)
from ablate.table.table import Table


def columns_of(table: Table, form: Form) -> tuple[Column, ...]:
    """Every column, from left to right; the legend and the scripts' formats have the same order."""
    setup = table.experiment.setup
    if setup is None:
        return (
            label_column(),
            verdict_column(table),
            *score_columns(table, form),
            *difference_columns(table, form),
            *verdict_columns(table, form),
        )
    return (
        *row_columns(table, setup, form),
        *score_columns(table, form),
        *difference_columns(table, form),
        *cost_columns(table, form),
        *paper_columns(table, setup, form),
        *verdict_columns(table, form),
    )


def paper_layout(
    table: Table,
    mark: Mark,
    against_paper: bool,
    with_cost: bool = False,
    *,
    best: str = "*",
    every_setting: bool = True,
) -> Layout:
    """The layout of the paper; without `every_setting`, settings that no row changes are in the
    legend. `best` says how the mark looks.
    """
    settings = varied_settings(table)
    if every_setting and table.experiment.setup is not None:
        settings = table.experiment.setup.settings
    form = Form(mark, against_paper, with_cost, settings, best=best)
    columns = columns_of(table, form)
    shown = text_columns(columns, table)
    return Layout(tuple(shown), _legend(columns, form, shown))


def terminal_layout(
    table: Table, mark: Mark, against_paper: bool, with_cost: bool = False, width: int | None = None
) -> Layout:
    """Rows by label, the most important columns first, as many as fit into `width`; all of them
    without a width. Where the paper's table fits, it has the paper's columns in the paper's order.

    Columns that do not fit are named in the first line of the legend.
    """
    if width is not None and table.is_papers:
        layout = _table_of_paper(table, mark, against_paper, with_cost, width)
        if layout is not None:
            return layout
    form = Form(mark, against_paper, with_cost, varied_settings(table), labels=True)
    declared = columns_of(table, form)
    columns = sorted(text_columns(declared, table), key=attrgetter("priority"))
    if width is None:
        return Layout(tuple(columns), _legend(declared, form, columns))
    shown = fitting(columns, width)
    legend = (*_left_out(table, columns, shown, width), *_legend(declared, form, shown))
    return Layout(tuple(folded(shown, width)), legend)


def _table_of_paper(
    table: Table, mark: Mark, against_paper: bool, with_cost: bool, width: int
) -> Layout | None:
    """Group, settings, scores, parameters and verdict, and further columns where they fit; None if
    these do not fit.
    """
    setup = table.experiment.setup
    settings = setup.settings if setup else ()
    form = Form(mark, against_paper, with_cost, settings, compact=True)
    declared = columns_of(table, form)
    columns = text_columns(declared, table)
    shown, further = [columns[0]], []
    for column in columns[1:]:
        if column.name == "params" or column.priority >= SETTING or column.priority in _IN_PAPER:
            shown.append(column)
        else:
            further.append(column)
    if width_of(shown) > width:
        return None
    for column in sorted(further, key=attrgetter("priority")):
        if width_of([*shown, column]) <= width:
            shown.append(column)
    shown.sort(key=columns.index)
    legend = (*_left_out(table, columns, shown, width), *_legend(declared, form, shown))
    return Layout(tuple(shown), legend)


_IN_PAPER = (SCORE, OTHER_SCORE, JOINT_VERDICT, VERDICT, REQUESTED)


def _left_out(
    table: Table, columns: Sequence[TextColumn], shown: Sequence[TextColumn], width: int
) -> Iterator[str]:
    """Yield a line that names the columns that are not shown, if there are any."""
    names = {column.name for column in shown}
    left_out = [column.name for column in columns if column.name not in names]
    if left_out:
        command = "table" if table.experiment.setup else "judge"
        line = f"Left out at {width} columns: {', '.join(left_out)}"
        yield f"{line}; `ablate {command} --wide` shows all."


def by_labels(table: Table, mark: Mark, best: str) -> Layout:
    """Every column but the settings, which labels name: for a table that can be sorted."""
    form = Form(mark, with_paper=False, labels=True, best=best)
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
