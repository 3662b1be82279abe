"""Tables, colors and counts that every text for the terminal shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ablate.formatting import fold, visible
from ablate.store.status import STATES, State
from ablate.streams import echo, new_console, widen

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
    """A row's label; where it does not fit, it is broken between its settings."""

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
        # Long labels continue below: two of them must not be cut to the same text.
        table.add_column(
            head.lstrip("+"), justify="right" if head.startswith("+") else "left", overflow="fold"
        )
    return table


def print_wide(table: Table) -> None:
    """Print within a terminal's width; piped, as wide as each line needs."""
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
    if not lines:
        widen(console, table)
        with console.capture() as captured:
            console.print(table)
        lines = list(map(Text, captured.get().splitlines()))
    echo("\n".join(line.plain.rstrip() for line in lines))


def _lines(table: Table) -> list[Text]:
    """The lines as rich prints them, which takes rich a millisecond each; none for cells of several
    lines.
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


def counted(runs: Iterable[tuple[object, State]]) -> str:
    """The states of runs: `2 done, 1 running`."""
    states = Counter(state for _, state in runs)
    return ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
