"""`ablate table`: the results as a table, in several formats."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from ablate.cli.options import (
    StudyFile,
    StudyOptions,
    print_faults,
    score_missing,
    warn_of_changed_data,
)
from ablate.errors import UsageError
from ablate.streams import new_console, print_data

EXAMPLE = "ablate table study.yaml --format latex --against paper"


class Format(StrEnum):
    """Formats of the table."""

    rich = "rich"
    markdown = "markdown"
    latex = "latex"
    html = "html"
    csv = "csv"
    json = "json"


class Against(StrEnum):
    """Published results to compare with."""

    paper = "paper"


def command(
    study: StudyFile,
    options: StudyOptions,
    *,
    format: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.rich,
    against: Annotated[
        Against | None, typer.Option("--against", help="Add the paper's table for the task.")
    ] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Add training time, tokens per second and FLOPs.")
    ] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="All columns, however narrow the terminal.")
    ] = False,
) -> None:
    """Print the results table from finished runs."""
    from ablate.analysis.table import table_of
    from ablate.report import render

    selected, root = options.open(study)
    if against is not None and format in (Format.csv, Format.json):
        raise UsageError(
            f"--against has no effect with --format {format.value}, which always includes it"
        )
    if wide and format is not Format.rich:
        raise UsageError(
            f"--wide has no effect with --format {format.value}, which always has all columns"
        )
    warn_of_changed_data(selected, root)
    faults = score_missing(selected, root)
    content = table_of(selected, root, faults)
    if format is not Format.rich:
        # Entries are functions, so that only the requested format is made.
        from ablate.page.html import table_html
        from ablate.report.latex import latex

        forms: dict[Format, Callable[[], str]] = {
            Format.markdown: lambda: render.markdown(content, against is not None, cost),
            Format.latex: lambda: latex(content, against is not None, cost),
            Format.html: lambda: table_html(content, against is not None, cost),
            Format.csv: lambda: render.comma_separated(content, timed=cost),
            Format.json: lambda: render.as_json(content, timed=cost),
        }
        if format is Format.csv:  # the other formats have them below the table
            print_faults(content)
        print_data(forms[format]())
    else:
        render.print_rich(content, new_console(), against is not None, cost, wide)
