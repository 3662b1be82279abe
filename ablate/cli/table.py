"""`ablate table`: the table from what is there."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RESULTS,
    Overrides,
    ResultsRoot,
    Rows,
    Seeds,
    StudyFile,
    measured,
    study_and_results,
    warn_of_other_text,
)


class Format(str, Enum):
    """Forms of the table."""

    rich = "rich"
    markdown = "markdown"
    latex = "latex"
    html = "html"
    csv = "csv"
    json = "json"


class Against(str, Enum):
    """What may stand beside our numbers."""

    paper = "paper"


def command(
    study: StudyFile,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    rows: Rows = None,
    seeds: Seeds = None,
    format: Annotated[Format, typer.Option("--format", help="How to write it.")] = Format.rich,
    against: Annotated[Against | None, typer.Option("--against", help="Put the paper's numbers beside ours.")] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Put time, tokens a second and FLOPs of a training beside the scores.")
    ] = False,
) -> None:
    """Print the table as the paper would, from what is there."""
    from ablate.report import render
    from ablate.report.table import table_of

    given, root = study_and_results(study, results, set, rows, seeds)
    for option, asked in (("--against", against is not None), ("--cost", cost)):
        if asked and format in (Format.csv, Format.json):
            raise typer.BadParameter(f"has no effect on --format {format.value}: it is always there", param_hint=option)
    warn_of_other_text(given, root)
    measured(given, root)
    content = table_of(given, root)
    if format is not Format.rich:
        from ablate.page.html import table_html
        from ablate.report.latex import latex

        forms: dict[Format, Callable[[], str]] = {
            Format.markdown: lambda: render.markdown(content, against is not None, cost),
            Format.latex: lambda: latex(content, against is not None, cost),
            Format.html: lambda: table_html(content, against is not None, cost),
            Format.csv: lambda: render.comma_separated(content),
            Format.json: lambda: render.as_json(content),
        }
        typer.echo(forms[format](), nl=False)
    else:
        from rich.console import Console

        render.print_rich(content, Console(highlight=False), against is not None, cost)
