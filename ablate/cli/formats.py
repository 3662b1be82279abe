"""The formats of a table, and its output in them."""

from __future__ import annotations

from typing import Annotated, Literal

from ablate.cli.arguments import flag, option
from ablate.cli.output import print_faults
from ablate.stdio import new_console, print_data
from ablate.table import render
from ablate.table.latex import latex
from ablate.table.table import Table

Format = Annotated[
    Literal["text", "markdown", "latex", "html", "csv", "json"],
    option("Output format: text, markdown, latex, html, csv or json.", "FORMAT"),
]
Legend = Annotated[bool, flag("--legend", "Print the whole legend, also in a terminal.")]
Wide = Annotated[bool, flag("--wide", "Print all columns, however narrow the terminal is.")]


def print_table(
    table: Table,
    format: Format,
    wide: bool,
    legend: bool,
    *,
    against_paper: bool = False,
    cost: bool = False,
) -> None:
    """Print a table in a format."""
    if format == "text":
        render.print_rich(table, new_console(), against_paper, cost, wide, legend)
        return
    if format == "csv":  # the other formats have the faults below the table
        print_faults(table)
    if format == "latex":
        print_data(latex(table, against_paper, cost, wide, legend))
        return
    print_data(_formatted(table, format, against_paper, cost))


def _formatted(table: Table, format: Format, against_paper: bool, cost: bool) -> str:
    """The text of a table in any format but `text` and `latex`."""
    match format:
        case "markdown":
            return render.markdown(table, against_paper, cost)
        case "csv":
            return render.comma_separated(table, timed=cost, with_paper=against_paper)
        case "json":
            return render.as_json(table, timed=cost)
        case _:
            from ablate.page.html import table_html  # loads jinja2

            return table_html(table, against_paper, cost)
