"""Tables, colors and counts that every text for the terminal shares."""

from __future__ import annotations

from collections import Counter

from rich import box
from rich.table import Table

from ablate.store.status import STATES, State
from ablate.streams import echo, new_console

STYLES: dict[str, str] = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "diverged": "red",
    "interrupted": "yellow",
}


def plain_table(*heads: str) -> Table:
    """A table without a frame; a head that begins with + is of numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in heads:
        # In a narrow terminal a long label continues below: two labels must not be cut to the same text.
        table.add_column(head.lstrip("+"), justify="right" if head.startswith("+") else "left", overflow="fold")
    return table


def print_wide(table: Table) -> None:
    """Print within a terminal's width; piped, as wide as each line needs."""
    console = new_console()
    if console.is_terminal:
        console.print(table)
        return
    console.width = max(console.width, console.measure(table, options=console.options.update(max_width=10_000)).maximum)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        echo(line.rstrip())


def counted(states: Counter[State]) -> str:
    """`2 done, 1 running`."""
    return ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
