"""The layout of a table: its columns and legend, and what fits on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from ablate.formatting import fold

# Importance of columns on a terminal, from left to right; the last ones are left out first.
# Two metrics have two differences, and the verdict by both comes before these.
ROW, SCORE, JOINT_VERDICT, DIFFERENCE, VERDICT, REQUESTED = range(6)
P_VALUE, OTHER_SCORE, CHOSEN, OTHER_DIFFERENCE, FURTHER, SETTING = range(6, 12)
LEAST_LABEL = 12  # minimum width of row labels beside the score, the difference and the verdict
GOOD_LABEL = 20  # labels are this wide before a verdict takes two lines
ENOUGH_LABEL = 28  # labels are this wide before less important columns are shown
_GAP = 3  # between columns


def name_of(head: str) -> str:
    """A head in one line, without what is in brackets: `ΔBLEU`, `paper BLEU`."""
    return " ".join(line for line in head.split("\n") if line[:1] not in ("(", "["))


@dataclass(frozen=True)
class TextColumn:
    """A column as people read it.

    head: may have two lines.
    numeric: aligned to the right.
    cells: one for each row.
    folds: whether a cell may take several lines.
    latex: the head in LaTeX; empty if it is `head`.
    priority: its importance on a terminal; the least number is the most important.
    """

    head: str
    numeric: bool
    cells: tuple[str, ...]
    folds: bool = False
    latex: str = ""
    priority: int = FURTHER

    @property
    def name(self) -> str:
        """The name of the head."""
        return name_of(self.head)

    @property
    def flat_head(self) -> str:
        """The head in one line, for formats without line breaks in a cell."""
        return self.head.replace("\n", " ")

    @property
    def lines(self) -> list[str]:
        """The lines of the head and of the cells."""
        return "\n".join((self.head, *self.cells)).split("\n")

    @property
    def full_width(self) -> int:
        """Width of the widest cell."""
        return max(map(cell_len, self.lines))

    @property
    def least_width(self) -> int:
        """Width that a narrow terminal may fold the column to."""
        if not self.folds:
            return self.full_width
        if self.priority == ROW:
            return min(self.full_width, LEAST_LABEL)
        return max(cell_len(line.split(" (")[0]) for line in self.lines)

    def folded(self, width: int) -> TextColumn:
        """The column in this width, with cells of several lines where they need it."""
        if self.full_width <= width:
            return self
        return replace(self, cells=tuple("\n".join(fold(cell, width)) for cell in self.cells))


class Warned(str):
    """A line of a legend that stands also where the legend is folded."""

    __slots__ = ()


@dataclass(frozen=True)
class Layout:
    """Columns, and the lines of the legend below them."""

    columns: tuple[TextColumn, ...]
    legend: tuple[str, ...]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells of each row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def warnings(self) -> list[str]:
        """The lines of the legend that are always shown."""
        return [line for line in self.legend if isinstance(line, Warned)]


def width_of(columns: Sequence[TextColumn]) -> int:
    """The width of columns side by side, with nothing folded."""
    return sum(column.full_width for column in columns) + _GAP * (len(columns) - 1)


def fitting(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """The columns that fit, the most important first. Requested and more important ones narrow the
    labels, and so does what was chosen for rows, which is folded where it does not fit otherwise.
    """
    shown = [columns[0]]
    for column in columns[1:]:
        forms = [column]
        if column.priority == CHOSEN:
            forms.append(column.folded(column.least_width))
        for form in forms:
            if _needed([*shown, form]) <= width:
                shown.append(form)
                break
    return shown


def _needed(columns: Sequence[TextColumn]) -> int:
    """The width that columns need, the last of which is the least important."""
    priority = columns[-1].priority
    if priority <= REQUESTED:
        needed = sum(column.least_width for column in columns)
    else:
        widths = [column.full_width for column in columns]
        label = GOOD_LABEL if priority == CHOSEN else ENOUGH_LABEL
        needed = min(widths[0], label) + sum(widths[1:])
    return needed + _GAP * (len(columns) - 1)


def folded(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """The columns folded to a width: labels a little, then verdicts, then labels again."""
    room = width - _GAP * (len(columns) - 1)
    widths = [column.full_width for column in columns]
    for least_label in (GOOD_LABEL, LEAST_LABEL):
        for index, column in enumerate(columns):
            least = column.least_width
            if column.priority == ROW:
                least = max(least, min(least_label, widths[index]))
            widths[index] = max(least, widths[index] - max(0, sum(widths) - room))
    return list(map(TextColumn.folded, columns, widths))
