"""The layout of a table: its columns and legend, and the columns that fit on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from ablate.formatting import fold

# Priority of columns on a terminal, from left to right; the last ones are left out first. The joint
# verdict by several metrics comes before their differences.
ROW, SCORE, JOINT_VERDICT, DIFFERENCE, VERDICT, REQUESTED = range(6)
P_VALUE, OTHER_SCORE, CHOSEN, OTHER_DIFFERENCE, FURTHER, SETTING = range(6, 12)
MIN_LABEL = 12  # minimum width of row labels
GOOD_LABEL = 20  # verdicts are folded before labels are narrower than this
ENOUGH_LABEL = 28  # columns are left out before labels are narrower than this
_GAP = 3  # between columns


def head_name(head: str) -> str:
    """A head in one line, without lines in brackets: `ΔBLEU`, `paper BLEU`."""
    return " ".join(line for line in head.split("\n") if line[:1] not in ("(", "["))


@dataclass(frozen=True)
class TextColumn:
    """A column for people.

    head: its title; may have two lines.
    numeric: whether cells are aligned to the right.
    cells: a cell for each row.
    folds: whether a cell may be broken into several lines.
    latex: the head in LaTeX; empty if it equals `head`.
    priority: its importance on a terminal; the smallest number is the most important.
    """

    head: str
    numeric: bool
    cells: tuple[str, ...]
    folds: bool = False
    latex: str = ""
    priority: int = FURTHER

    @property
    def name(self) -> str:
        """The head in one line, without units."""
        return head_name(self.head)

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
        """Width of the widest line."""
        return max(map(cell_len, self.lines))

    @property
    def min_width(self) -> int:
        """The smallest width to which the column may be folded."""
        if not self.folds:
            return self.full_width
        if self.priority == ROW:
            return min(self.full_width, MIN_LABEL)
        return max(cell_len(line.split(" (")[0]) for line in self.lines)

    def folded(self, width: int) -> TextColumn:
        """The column with its cells folded to a width."""
        if self.full_width <= width:
            return self
        return replace(self, cells=tuple("\n".join(fold(cell, width)) for cell in self.cells))


SHORT_LEGEND = 4  # lines


class Warned(str):
    """A line of a legend that is always shown, even if a page hides the rest of the legend."""

    __slots__ = ()


class Remark(Warned):
    """A warned line on how the runs were made, which the methods of a paper have."""

    __slots__ = ()


class Essential(str):
    """A line that explains the verdicts, which a short legend has, too."""

    __slots__ = ()


class Meaning(Essential):
    """The line that says what each verdict means."""

    __slots__ = ()


@dataclass(frozen=True)
class Layout:
    """Columns, and the lines of the legend below the table."""

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

    @property
    def explanations(self) -> list[str]:
        """The lines of the legend that a page may hide."""
        return [line for line in self.legend if not isinstance(line, Warned)]

    @property
    def short_legend(self) -> list[str]:
        """The warnings and the essential lines, and the first of the other lines, up to
        SHORT_LEGEND lines. A legend with one line more is shown as a whole, because a line would
        have to say that another one is left out.
        """
        if len(self.legend) <= SHORT_LEGEND + 1:
            return list(self.legend)
        lines: list[str] = [line for line in self.legend if isinstance(line, (Warned, Essential))]
        others = [line for line in self.legend if line not in lines]
        lines += others[: max(0, SHORT_LEGEND - len(lines))]
        return [line for line in self.legend if line in lines]


def total_width(columns: Sequence[TextColumn]) -> int:
    """The width of a table of these columns, without folding."""
    return sum(column.full_width for column in columns) + _GAP * (len(columns) - 1)


def fitting(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """The columns that fit into a width, of columns sorted by priority.

    Columns that were requested, or are more important, may narrow the labels to MIN_LABEL. The
    column of chosen settings may narrow them to GOOD_LABEL, and is folded if it does not fit
    otherwise.
    """
    shown = [columns[0]]
    for column in columns[1:]:
        forms = [column]
        if column.priority == CHOSEN:
            forms.append(column.folded(column.min_width))
        for form in forms:
            if _needed_width([*shown, form]) <= width:
                shown.append(form)
                break
    return shown


def _needed_width(columns: Sequence[TextColumn]) -> int:
    """The width that columns need, sorted by priority."""
    priority = columns[-1].priority
    if priority <= REQUESTED:
        cells = sum(column.min_width for column in columns)
    else:
        widths = [column.full_width for column in columns]
        label = GOOD_LABEL if priority == CHOSEN else ENOUGH_LABEL
        cells = min(widths[0], label) + sum(widths[1:])
    return cells + _GAP * (len(columns) - 1)


def folded(columns: Sequence[TextColumn], width: int) -> list[TextColumn]:
    """Fold columns to a width: labels down to GOOD_LABEL, then verdicts, then labels again."""
    available = width - _GAP * (len(columns) - 1)
    widths = [column.full_width for column in columns]
    for min_label in (GOOD_LABEL, MIN_LABEL):
        for index, column in enumerate(columns):
            min_width = column.min_width
            if column.priority == ROW:
                min_width = max(min_width, min(min_label, widths[index]))
            excess = max(0, sum(widths) - available)
            widths[index] = max(min_width, widths[index] - excess)
    return list(map(TextColumn.folded, columns, widths))
