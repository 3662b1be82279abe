"""The order of the columns of the results table, and their layouts for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from ablate.table.columns.column import Column, Form, Mark, text_columns
from ablate.table.columns.cost import cost_columns
from ablate.table.columns.differences import difference_columns, verdict_column, verdict_columns
from ablate.table.columns.paper import paper_columns
from ablate.table.columns.rows import label_column, row_columns
from ablate.table.columns.scores import score_columns
from ablate.table.layout import (
    FURTHER,
    JOINT_VERDICT,
    OTHER_DIFFERENCE,
    OTHER_SCORE,
    REQUESTED,
    SCORE,
    SETTING,
    VERDICT,
    Layout,
    TextColumn,
    Warned,
    fitting,
    folded,
    total_width,
)
from ablate.table.table import Table


def table_columns(table: Table, form: Form) -> tuple[Column, ...]:
    """All columns, from left to right. The legend and the formats for scripts have this order."""
    setup = table.experiment.setup
    if not table.experiment.is_study:
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


def full_layout(
    table: Table,
    mark: Mark,
    best: str,
    against_paper: bool = False,
    with_cost: bool = False,
    *,
    is_sortable: bool = False,
) -> Layout:
    """The layout for documents. A table with all rows of the paper looks as in the paper; any other
    table has labels, the most important columns first, and no settings, because labels and legend
    name them.

    A table that readers can sort always has labels. The other options are those of `Form`.
    """
    form = Form(mark, against_paper, with_cost, best=best)
    if table.covers_paper and not is_sortable:
        return _paper_layout(table, form)
    declared = table_columns(table, form)
    columns = []
    for column in text_columns(declared, table):
        if column.priority == REQUESTED:
            # These columns come first on a terminal, because its user has requested them.
            column = replace(column, priority=FURTHER)
        if any(column.cells):
            columns.append(column)
    columns = _in_order(columns)
    return Layout(tuple(columns), _legend(declared, form, columns))


def terminal_layout(
    table: Table, mark: Mark, against_paper: bool, with_cost: bool = False, width: int | None = None
) -> Layout:
    """The layout for a terminal: a column of labels, then the most important columns that fit.

    A table with all rows of the paper has the paper's columns in the paper's order, if these fit.
    The first line of the legend names the columns that do not fit. `width` is the number of
    characters, or None to show all columns; the other options are those of `Form`.
    """
    form = Form(mark, against_paper, with_cost)
    if table.covers_paper:
        layout = _paper_layout(table, form) if width is None else _narrow(table, form, width)
        if layout is not None:
            return layout
    declared = table_columns(table, form)
    columns = sorted(text_columns(declared, table), key=attrgetter("priority"))
    if width is None:
        columns = _in_order(columns)
        return Layout(tuple(columns), _legend(declared, form, columns))
    shown = _in_order(fitting(columns, width))
    legend = (*_left_out(table, columns, shown, width), *_legend(declared, form, shown))
    return Layout(tuple(folded(shown, width)), legend)


def _in_order(columns: Sequence[TextColumn]) -> list[TextColumn]:
    """The columns by priority; a difference without a verdict stands beside its score."""
    ordered = sorted(columns, key=attrgetter("priority"))
    for column in columns:
        names = [other.name for other in ordered]
        score = column.name.removeprefix("Δ")
        if column.priority == OTHER_DIFFERENCE and score in names:
            ordered.remove(column)
            ordered.insert(names.index(score) + 1, column)
    return ordered


def _paper_layout(table: Table, form: Form) -> Layout:
    """All columns, in the order of the paper."""
    form = replace(form, as_paper=True)
    declared = table_columns(table, form)
    columns = [column for column in text_columns(declared, table) if any(column.cells)]
    return Layout(tuple(columns), _legend(declared, form, columns))


def _narrow(table: Table, form: Form, width: int) -> Layout | None:
    """The paper's columns and the verdict, and further columns that fit; None if the former do not
    fit.
    """
    form = replace(form, as_paper=True, compact=True)
    declared = table_columns(table, form)
    columns = text_columns(declared, table)
    shown = [columns[0]]
    further = []
    for column in columns[1:]:
        is_setting = column.priority == SETTING
        if column.name == "params" or is_setting or column.priority in _PAPER_PRIORITIES:
            shown.append(column)
        else:
            further.append(column)
    if total_width(shown) > width:
        return None
    for column in sorted(further, key=attrgetter("priority")):
        if total_width([*shown, column]) <= width:
            shown.append(column)
    shown.sort(key=columns.index)
    legend = (*_left_out(table, columns, shown, width), *_legend(declared, form, shown))
    return Layout(tuple(shown), legend)


_PAPER_PRIORITIES = (SCORE, OTHER_SCORE, JOINT_VERDICT, VERDICT, REQUESTED)


def _left_out(
    table: Table, columns: Sequence[TextColumn], shown: Sequence[TextColumn], width: int
) -> Iterator[str]:
    """Yield a line with the names of the columns that are not shown; none if all are shown."""
    names = {column.name for column in shown}
    left_out = [column.name for column in columns if column.name not in names]
    if left_out:
        line = f"Left out at {width} columns: {', '.join(left_out)}"
        yield Warned(f"{line}; `{table.experiment.setup.command} --wide` shows all.")


def _legend(declared: Sequence[Column], form: Form, shown: Sequence[TextColumn]) -> tuple[str, ...]:
    """The lines that explain the shown columns, in the order of the declared columns."""
    left_out = {column.name for column in declared if column.text}
    left_out -= {column.name for column in shown}
    form = replace(form, left_out=frozenset(left_out))
    lines: list[str] = []
    for column in declared:
        if form.shows(column.name):
            lines += column.legend(form)
    return tuple(lines)
