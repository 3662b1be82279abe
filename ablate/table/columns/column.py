"""A column of the results table: a quantity of every row, declared once for all formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.paper import PaperColumn
from ablate.table.layout import FURTHER, TextColumn, name_of
from ablate.table.table import Table, TableRow

Mark = Callable[[str], str]  # marks the cell of a best value


@dataclass(frozen=True)
class Form:
    """What a format shows of the table.

    settings: the settings of Table 3 with a column of their own.
    labels: row labels in place of the groups' names and of further settings.
    compact: the other changes of a row beside its group, and verdicts without detectable
        differences.
    timed: whether scripts get measured times, which differ each time a study is repeated.
    left_out: names of columns that are not shown.
    best: how the mark of best values looks, for the legend.
    """

    mark: Mark = str
    with_paper: bool = True
    with_cost: bool = True
    settings: tuple[PaperColumn, ...] = ()
    labels: bool = False
    compact: bool = False
    timed: bool = True
    left_out: frozenset[str] = frozenset()
    best: str = "*"

    def shows(self, name: str) -> bool:
        """Return whether a column with this name is not left out."""
        return name not in self.left_out


@dataclass(frozen=True)
class Column:
    """A quantity of every row.

    key: its name in JSON.
    head: above its cells where people read it; may have two lines.
    value: of a row, as JSON has it; None for a column that only people read.
    text: the cell of a row; None for a column that only scripts read.
    legend: the lines below the table that explain it; they are left out with the column, and always
        there for one that only scripts read.
    priority: its importance on a terminal; the least number is the most important.
    parts: parts of the value by their names in CSV and in frames, each with the keys that lead to
        it; None for the value itself, under its key.
    flat: of a row, the value in CSV and in frames; None for its parts.
    numeric: aligned to the right.
    folds: whether a cell may take several lines.
    only_filled: whether the column is left out without any cell.
    latex: the head in LaTeX; empty if it is `head`.
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
        """The name of the head."""
        return name_of(self.head)


def text_columns(columns: Iterable[Column], table: Table) -> list[TextColumn]:
    """The columns that people read, with their cells."""
    shown = []
    for column in columns:
        if column.text is None:
            continue
        cells = tuple(map(column.text, table.rows))
        if any(cells) or not column.only_filled:
            place = (column.folds, column.latex, column.priority)
            shown.append(TextColumn(column.head, column.numeric, cells, *place))
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
    """The rows of the table for CSV and frames, whose cells are numbers and texts."""
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
    """The parts of a value by their names; None where there is none."""
    if column.parts is None:
        return {column.key: value}
    parts = {}
    for name, keys in column.parts.items():
        part = value
        for key in keys:
            part = None if part is None else part.get(key)
        parts[name] = part
    return parts
