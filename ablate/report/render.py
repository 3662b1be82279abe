"""The table's forms: for the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

from ablate.report.layout import SETTINGS, Layout, bare, layouts
from ablate.report.table import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


def print_rich(table: Table, console: Console, against_paper: bool) -> None:
    """Print to a terminal in the widest layout that it holds; piped, in the paper's, however wide."""
    forms = layouts(table, lambda text: f"{text}*", against_paper)
    chosen = forms[0]
    if console.is_terminal:
        chosen = next((form for form in forms if _width(form, console) <= console.width), forms[-1])
    else:
        console.width = max(console.width, _width(chosen, console))
    console.print(_rich(chosen), highlight=False)
    for line in chosen.legend:
        console.print(line, style="dim", highlight=False, markup=False, soft_wrap=not console.is_terminal)


def markdown(table: Table, against_paper: bool) -> str:
    """A Markdown table with its legend as a list."""
    layout = bare(layouts(table, lambda text: f"**{text}**", against_paper)[0])
    rows = zip(*(column.cells for column in layout.columns), strict=True)
    lines = [
        _markdown_row(column.head for column in layout.columns),
        _markdown_row("---:" if column.numeric else "---" for column in layout.columns),
        *(_markdown_row(cells) for cells in rows),
        "",
        *(f"- {line.replace('* best', '**bold**: best')}" for line in layout.legend),
    ]
    return "\n".join(lines) + "\n"


def comma_separated(table: Table) -> str:
    """One line a row, numbers in full."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = [f"{metric}_{part}" for metric in ("ppl", "bleu", "delta_bleu") for part in ("mean", "std", "n")]
    names = [name for _, name in SETTINGS]
    writer.writerow(["row", "group", *names, "changed", "params", "steps", "state", *heads])
    for row in table.rows:
        changed = " ".join(f"{name}={value}" for name, value in row.row.changed.items())
        settings = [getattr(row.row.config, name) for name in names]
        scores = [x for s in (row.ppl, row.bleu, row.delta_bleu) for x in (s.mean, s.std, s.n)]
        writer.writerow([row.row.label, row.row.group, *settings, changed, row.params, row.steps, row.state, *scores])
    return out.getvalue()


def as_json(table: Table) -> str:
    """The contract for scripts."""
    return json.dumps(table.as_json(), indent=1) + "\n"


def _markdown_row(cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"  # type: ignore[attr-defined]


def _rich(layout: Layout) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in layout.columns:
        if column.numeric:
            rich.add_column(Text(column.head), justify="right", no_wrap=True)
        else:
            rich.add_column(Text(column.head), overflow="fold")  # a long label goes on below, none of it is lost
    for cells in zip(*(column.cells for column in layout.columns), strict=True):
        rich.add_row(*(Text(cell, style="bold" if cell.endswith("*") else "") for cell in cells))
    return rich


def _width(layout: Layout, console: Console) -> int:
    from rich.measure import Measurement

    wide = console.options.update(width=10_000, max_width=10_000)
    return Measurement.get(console, wide, _rich(layout)).maximum
