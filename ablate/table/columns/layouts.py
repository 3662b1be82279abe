"""The order of the columns of the results table, and their layouts for people."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from ablate.formatting import enumeration
from ablate.table.columns.column import Column, Form, Mark, text_columns
from ablate.table.columns.cost import cost_columns
from ablate.table.columns.differences import (
    difference_columns,
    published_difference_lines,
    verdict_column,
    verdict_columns,
)
from ablate.table.columns.paper import paper_columns
from ablate.table.columns.rows import derived_heads, label_column, row_columns
from ablate.table.columns.scores import score_columns
from ablate.table.layout import (
    DIFFERENCE,
    FURTHER,
    JOINT_VERDICT,
    OTHER_DIFFERENCE,
    OTHER_SCORE,
    REQUESTED,
    ROW,
    SCORE,
    SETTING,
    VERDICT,
    Essential,
    Layout,
    Meaning,
    Remark,
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


def publication_layout(
    table: Table,
    mark: Mark,
    best: str,
    against_paper: bool = False,
    with_cost: bool = False,
    *,
    whole_legend: bool = False,
) -> Layout:
    """The layout for the page of a paper: labels, or the columns of the paper's table with all its
    rows; then the scores and differences of the verdicts, the verdicts, and requested columns.

    The legend has a few sentences for readers, who find settings and signatures in the methods;
    with `whole_legend`, all lines. The other options are those of `Form`.
    """
    is_as_paper = table.covers_paper
    form = Form(
        mark,
        against_paper,
        with_cost,
        is_as_paper,
        compact=True,
        best=best,
        has_conclusion=whole_legend,
    )
    declared = table_columns(table, form)
    columns = []
    for index, column in enumerate(text_columns(declared, table)):
        is_of_paper = column.priority == SETTING or column.name == "params"
        if index and not any(column.cells):
            continue
        if not index or column.priority in _PUBLISHED or (is_as_paper and is_of_paper):
            columns.append(column)
    if not is_as_paper:
        columns = _in_order(columns)
    columns = _counted_once(columns)
    legend = _legend(declared, form, columns)
    if not whole_legend:
        legend = tuple(_published_legend(table, form, columns, legend))
    return Layout(tuple(columns), legend)


_COUNT = re.compile(r" \(\d+/\d+\)$")


def _counted_once(columns: Sequence[TextColumn]) -> list[TextColumn]:
    """Columns whose cells have the number of seeds only where the row has not stated it before."""
    stated: list[set[str]] = [set() for _ in columns[0].cells]
    shortened = []
    for column in columns:
        cells = []
        for cell, counts in zip(column.cells, stated, strict=True):
            count = _COUNT.search(cell)
            if count and count[0] in counts:
                cell = cell[: count.start()]
            elif count:
                counts.add(count[0])
            cells.append(cell)
        shortened.append(replace(column, cells=tuple(cells)))
    return shortened


_PUBLISHED = (ROW, SCORE, JOINT_VERDICT, DIFFERENCE, VERDICT, REQUESTED)


def _published_legend(
    table: Table, form: Form, shown: Sequence[TextColumn], legend: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of a legend that readers of a paper need: means and marks, differences,
    verdicts, groups, requested columns and warnings. The methods have the remarks on the runs.
    """
    for line in legend:
        if isinstance(line, Essential) and not isinstance(line, Meaning):
            yield line
    yield from published_difference_lines(table)
    yield from (line for line in legend if isinstance(line, Meaning))
    if any(column.name.startswith("p ") or column.name == "p" for column in shown):
        yield "p: the corrected p value of the verdict."
    yield from _groups_line(table)
    if not form.as_paper:  # the columns of the paper have these sizes
        yield from filter(None, [derived_heads(table)])
    requested: list[Column] = []
    if form.with_cost:
        requested += cost_columns(table, form)
    if form.with_paper:
        requested += paper_columns(table, table.experiment.setup, form)
    for column in requested:
        yield from column.legend(form)
    for line in legend:
        if isinstance(line, Warned) and not isinstance(line, Remark):
            yield line


def _groups_line(table: Table) -> Iterator[str]:
    """Yield what the groups are by which rows are labeled, letters as a range."""
    groups: dict[str, None] = {}
    for row in table.rows:
        if not row.is_base and (len(row.group) == 1 or row.label.startswith(f"{row.group} ")):
            groups[row.group] = None
    letters = [name for name in groups if len(name) == 1]
    words = [name for name in groups if len(name) > 1]
    if len(letters) > 2 and "".join(letters) in string.ascii_uppercase:
        letters = [f"{letters[0]} to {letters[-1]}"]
    if groups:
        meaning = "is a group" if len(groups) == 1 else "are the groups"
        yield f"{enumeration([*letters, *words])} {meaning} of the study's rows."


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
