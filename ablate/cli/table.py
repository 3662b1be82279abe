"""`ablate table`: the table from what is there."""

from __future__ import annotations

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
)


class Format(str, Enum):
    """Forms of the table."""

    rich = "rich"
    markdown = "markdown"
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
    against: Annotated[
        Against | None, typer.Option("--against", help="Put the paper's numbers beside ours (rich, markdown).")
    ] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Put time, tokens a second and FLOPs of a training beside the scores.")
    ] = False,
) -> None:
    """Print the table as the paper would, from what is there."""
    from ablate.report import render
    from ablate.report.table import table_of

    given, root = study_and_results(study, results, set, rows, seeds)
    if against is not None and format not in (Format.rich, Format.markdown):
        raise typer.BadParameter(f"has no effect on --format {format.value}", param_hint="--against")
    if cost and format not in (Format.rich, Format.markdown):
        raise typer.BadParameter(f"has no effect on --format {format.value}, which has it always", param_hint="--cost")
    measured(given, root)
    content = table_of(given, root)
    if format is Format.markdown:
        typer.echo(render.markdown(content, against is not None, cost), nl=False)
    elif format is Format.csv:
        typer.echo(render.comma_separated(content), nl=False)
    elif format is Format.json:
        typer.echo(render.as_json(content), nl=False)
    else:
        from rich.console import Console

        render.print_rich(content, Console(highlight=False), against is not None, cost)
