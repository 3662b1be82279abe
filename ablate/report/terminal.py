"""Tables, colors and counts for texts on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from ablate.formatting import fold, visible
from ablate.stdio import echo, new_console, whole_lines
from ablate.store.status import STATES, State

LARGE = 200  # rows; longer tables are formatted without rich, which is slow
STYLES: dict[str, str] = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "diverged": "red",
    "interrupted": "yellow",
}


@dataclass(frozen=True)
class Label:
    """The label of a row. A label that does not fit is broken between its settings."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(fold(visible(self.text), options.max_width)))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, cell_len(visible(self.text)))


def text_console() -> Console:
    """A console for lines of text, which are broken between words on a terminal and stay whole in a
    pipe.
    """
    console = new_console()
    console.soft_wrap = not console.is_terminal
    return console


def right(head: str) -> Column:
    """A column that is aligned to the right, for numbers."""
    return Column(head, justify="right")


def plain_table(*columns: str | Column) -> Table:
    """A table without a frame. A column is given by its head, or by `right` of its head."""
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in table.columns:
        # Long labels are folded, because two labels could be cut to the same text.
        column.overflow = "fold"
    return table


def print_wide(table: Table) -> None:
    """Print a table within the width of a terminal, or in full width if the output is piped."""
    console = new_console()
    lines: list[Text] = []
    if table.row_count > LARGE and console.encoding.startswith("utf"):
        lines = _lines(table)
    if console.is_terminal:
        if lines and lines[0].cell_len <= console.width:
            console.print(*lines, sep="\n", soft_wrap=True)
        else:
            console.print(table)
        return
    if lines:
        echo("\n".join(line.plain.rstrip() for line in lines))
    else:
        echo(whole_lines(console, table))


def _lines(table: Table) -> list[Text]:
    """The lines of a table as rich prints them, in less time: rich needs a millisecond a line.
    Empty if a cell has several lines.
    """
    columns = []
    for column in table.columns:
        cells = list(map(_text, (column.header, *column.cells)))
        if any("\n" in cell.plain for cell in cells):
            return []
        columns.append(cells)
        width = max(cell.cell_len for cell in cells)
        cells[0].stylize("bold")
        for cell in cells:
            pad = cell.pad_left if column.justify == "right" else cell.pad_right
            pad(width - cell.cell_len)
    head, *rows = [Text("   ").join(cells) for cells in zip(*columns, strict=True)]
    return [head, Text("─" * head.cell_len), *rows]


def _text(cell: RenderableType) -> Text:
    if isinstance(cell, Text):
        return cell.copy()
    return Text(visible(str(cell)))


def counted(states: Iterable[State]) -> str:
    """Count states: `2 done, 1 running`."""
    counts = Counter(states)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
