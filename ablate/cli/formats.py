"""The formats of a table, and its output in them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from ablate.cli.options import option, print_faults
from ablate.errors import UsageError
from ablate.streams import new_console, print_data

if TYPE_CHECKING:
    from ablate.analysis.table import Table


class Format(StrEnum):
    """Formats of the table."""

    rich = "rich"
    markdown = "markdown"
    latex = "latex"
    html = "html"
    csv = "csv"
    json = "json"


TableFormat = Annotated[Format, option("--format", "Output format.")]
Wide = Annotated[bool, option("--wide", "All columns, however narrow the terminal.")]


def refuse_wide(wide: bool, format: Format) -> None:
    """Refuse `--wide` where it has no effect."""
    if wide and format is not Format.rich:
        raise UsageError(
            f"--wide has no effect with --format {format.value}, which always has all columns"
        )


def print_table(
    table: Table, format: Format, wide: bool, *, against_paper: bool = False, cost: bool = False
) -> None:
    """Print a table in a format."""
    from ablate.report import render

    if format is Format.rich:
        render.print_rich(table, new_console(), against_paper, cost, wide)
        return
    # Entries are functions, so that only the requested format is made.
    from ablate.page.html import table_html
    from ablate.report.latex import latex

    forms: dict[Format, Callable[[], str]] = {
        Format.markdown: lambda: render.markdown(table, against_paper, cost),
        Format.latex: lambda: latex(table, against_paper, cost),
        Format.html: lambda: table_html(table, against_paper, cost),
        Format.csv: lambda: render.comma_separated(table, timed=cost),
        Format.json: lambda: render.as_json(table, timed=cost),
    }
    if format is Format.csv:  # the other formats have them below the table
        print_faults(table)
    print_data(forms[format]())
