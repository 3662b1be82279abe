"""A column of the results table: a quantity of each row, declared once for all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.table.layout import FURTHER, TextColumn, head_name
from ablate.table.table import Table, TableRow

Mark = Callable[[str], str]  # marks the cell of the best value


@dataclass(frozen=True)
class Form:
    """Options of a format of the table.

    mark: marks the best values.
    with_paper: whether to show the numbers of the paper.
    with_cost: whether to show the cost of training.
    as_paper: whether columns of groups and settings, as in Table 3 of the paper, take the place of
        row labels.
    compact: whether verdicts have no detectable differences.
    timed: whether scripts get measured times, which differ between repetitions of a study.
    left_out: names of columns that are not shown.
    best: the mark of the best values, for the legend.
    has_conclusion: whether the conclusion stands beside the table.
    """

    mark: Mark = str
    with_paper: bool = True
    with_cost: bool = True
    as_paper: bool = False
    compact: bool = False
    timed: bool = True
    left_out: frozenset[str] = frozenset()
    best: str = "*"
    has_conclusion: bool = True

    def shows(self, name: str) -> bool:
        """Whether the column with this name is shown."""
        return name not in self.left_out


@dataclass(frozen=True)
class Column:
    """A quantity of each row.

    key: its name in JSON.
    head: the title of the column for people; may have two lines.
    value: the value of a row in JSON; None if only people see the column.
    text: the cell of a row; None if only scripts have the column.
    legend: the lines below the table that explain the column. They are shown with the column, or
        always if only scripts have the column.
    priority: its importance on a terminal; the smallest number is the most important.
    parts: the columns of the value in CSV and data frames, by name, with the path of keys to the
        part of the value; None for a single column named `key`.
    flat: the value of a row in CSV and data frames; None to use `parts`.
    numeric: whether cells are aligned to the right.
    folds: whether a cell may be broken into several lines.
    only_filled: whether the column is left out if all cells are empty.
    latex: the head in LaTeX; empty if it equals `head`.
    """

    key: str
    head: str = ""
    value: Callable[[TableRow], Any] | None = None
    text: Callable[[TableRow], str] | None = None
    legend: Callable[[Form], Iterable[str]] = lambda form: ()
    priority: int = FURTHER
    parts: Mapping[str, tuple[str, ...]] | None = None
    flat: Callable[[TableRow], Any] | None = None
    numeric: bool = True
    folds: bool = False
    only_filled: bool = False
    latex: str = ""

    @property
    def name(self) -> str:
        """The head in one line, without units."""
        return head_name(self.head)


def text_columns(columns: Iterable[Column], table: Table) -> list[TextColumn]:
    """The columns for people, with their cells."""
    shown = []
    for column in columns:
        if column.text is None:
            continue
        cells = tuple(map(column.text, table.rows))
        if any(cells) or not column.only_filled:
            text_column = TextColumn(
                column.head,
                column.numeric,
                cells,
                folds=column.folds,
                latex=column.latex,
                priority=column.priority,
            )
            shown.append(text_column)
    return shown


def json_rows(columns: Iterable[Column], table: Table) -> list[dict[str, Any]]:
    """The rows of the table for scripts."""
    rows: list[dict[str, Any]] = [{} for _ in table.rows]
    for column in columns:
        if column.value is not None:
            for row, content in zip(table.rows, rows, strict=True):
                content[column.key] = column.value(row)
    return rows


def flat_rows(columns: Sequence[Column], table: Table) -> list[dict[str, Any]]:
    """The rows of the table for CSV and data frames: each cell is a number or a text."""
    lines = []
    for row, content in zip(table.rows, json_rows(columns, table), strict=True):
        line: dict[str, Any] = {}
        for column in columns:
            if column.flat is not None:
                line[column.key] = column.flat(row)
            elif column.value is not None:
                line |= _parts(column, content[column.key])
        lines.append(line)
    return lines


def _parts(column: Column, value: Any) -> dict[str, Any]:
    """The columns of a value in CSV, by name; None for missing parts."""
    if column.parts is None:
        return {column.key: value}
    parts = {}
    for name, keys in column.parts.items():
        part = value
        for key in keys:
            part = None if part is None else part.get(key)
        parts[name] = part
    return parts
