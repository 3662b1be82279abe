"""Tables, colors and counts that every text for the terminal shares."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ablate.formatting import fold, visible
from ablate.store.status import STATES, State
from ablate.streams import echo, new_console

LARGE = 200  # rows; a longer table is laid out here
STYLES: dict[str, str] = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "diverged": "red",
    "interrupted": "yellow",
}


@dataclass(frozen=True)
class Label:
    """A row's label in a table; where it does not fit, it is broken between its settings instead of
    anywhere.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(fold(visible(self.text), options.max_width)))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, cell_len(visible(self.text)))


def text_console() -> Console:
    """Return a console for lines of text: broken between words in a terminal, whole in a pipe."""
    console = new_console()
    console.soft_wrap = not console.is_terminal
    return console


def plain_table(*heads: str) -> Table:
    """A table without a frame; a head that begins with + is of numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in heads:
        justify: Literal["left", "right"] = "right" if head.startswith("+") else "left"
        # Long labels continue below: two of them must not be cut to the same text.
        table.add_column(head.lstrip("+"), justify=justify, overflow="fold")
    return table


def widen(console: Console, table: Table) -> None:
    """Make a console as wide as a table needs."""
    options = console.options.update(max_width=10_000)
    console.width = max(console.width, console.measure(table, options=options).maximum)


def print_wide(table: Table) -> None:
    """Print within a terminal's width; piped, as wide as each line needs."""
    console = new_console()
    lines = _lines(table) if table.row_count > LARGE and console.encoding.startswith("utf") else []
    if lines and (not console.is_terminal or lines[0].cell_len <= console.width):
        if console.is_terminal:
            console.print(*lines, sep="\n", soft_wrap=True)
        else:
            echo("\n".join(line.plain.rstrip() for line in lines))
        return
    if console.is_terminal:
        console.print(table)
        return
    widen(console, table)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        echo(line.rstrip())


def _lines(table: Table) -> list[Text]:
    """The lines of a table as rich prints it, which takes rich a millisecond each; none for cells
    of several lines.
    """
    columns = [[_text(cell) for cell in (column.header, *column.cells)] for column in table.columns]
    if any("\n" in cell.plain for cells in columns for cell in cells):
        return []
    for column, cells in zip(table.columns, columns, strict=True):
        width = max(cell.cell_len for cell in cells)
        cells[0].stylize("bold")
        for cell in cells:
            pad = cell.pad_left if column.justify == "right" else cell.pad_right
            pad(width - cell.cell_len)
    head, *rows = [Text("   ").join(cells) for cells in zip(*columns, strict=True)]
    return [head, Text("─" * head.cell_len), *rows]


def _text(cell: RenderableType) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(visible(str(cell)))


def counted(states: Counter[State]) -> str:
    """`2 done, 1 running`."""
    return ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
