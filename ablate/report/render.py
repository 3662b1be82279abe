"""The table's forms: for the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from ablate.report.agreement import agreements_json
from ablate.report.frames import rows_frame
from ablate.report.layout import Layout, bare, layouts
from ablate.report.table import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


def print_rich(table: Table, console: Console, against_paper: bool, with_cost: bool = False) -> None:
    """Print to a terminal in the widest layout that it holds; piped, in the paper's, however wide."""
    forms = layouts(table, lambda text: f"{text}*", against_paper, with_cost)
    chosen = forms[0]
    if console.is_terminal:
        chosen = next((form for form in forms if _width(form, console) <= console.width), forms[-1])
    else:
        console.width = max(console.width, _width(chosen, console))
    console.print(_rich(chosen), highlight=False)
    for line in chosen.legend:
        console.print(line, style="dim", highlight=False, markup=False, soft_wrap=not console.is_terminal)


def markdown(table: Table, against_paper: bool, with_cost: bool = False) -> str:
    """A Markdown table with its legend as a list."""
    layout = bare(layouts(table, lambda text: f"**{text}**", against_paper, with_cost)[0])
    rows = zip(*(column.cells for column in layout.columns), strict=True)
    lines = [
        _markdown_row(column.head for column in layout.columns),
        _markdown_row("---:" if column.numeric else "---" for column in layout.columns),
        *(_markdown_row(cells) for cells in rows),
        "",
        *(f"- {line.replace('* best', '**bold**: best')}" for line in layout.legend),
    ]
    return "\n".join(lines) + "\n"


def comma_separated(table: Table, timed: bool = True) -> str:
    """One line for each row, numbers in full; `timed` adds measured times."""
    return rows_frame(table, timed).to_csv(lineterminator="\n")


def as_json(table: Table, timed: bool = True) -> str:
    """The contract for scripts; `timed`: with what a clock has measured."""
    return json.dumps({**table.as_json(timed), "agreement": agreements_json(table)}, indent=1) + "\n"


def _markdown_row(cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"  # type: ignore[attr-defined]


def _rich(layout: Layout) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in layout.columns:
        justify: Literal["left", "right"] = "right" if column.numeric else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if column.folds else "ellipsis"  # a long label goes on below
        rich.add_column(Text(column.head), justify=justify, no_wrap=not column.folds, overflow=overflow)
    for cells in zip(*(column.cells for column in layout.columns), strict=True):
        rich.add_row(*(Text(cell, style="bold" if cell.endswith("*") else "") for cell in cells))
    return rich


def _width(layout: Layout, console: Console) -> int:
    from rich.measure import Measurement

    wide = console.options.update(width=10_000, max_width=10_000)
    return Measurement.get(console, wide, _rich(layout)).maximum
