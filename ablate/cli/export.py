"""`ablate export`: a trained run in another library's form."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot, RunId, find_run
from ablate.store import Results


class Target(str, Enum):
    """Libraries that a run can be written for."""

    huggingface = "huggingface"
    ctranslate2 = "ctranslate2"


def command(
    run: RunId,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to: a new or empty folder.", show_default=False)],
    to: Annotated[Target, typer.Option("--to", help="Whose form to write it in.", show_default=False)],
    results: ResultsRoot = DEFAULT_RESULTS,
) -> None:
    """Write a trained run for another library."""
    found = find_run(Results(results), run)
    from ablate.export import export

    name = export(found, Results(results), to.value, folder)
    typer.echo(f"Wrote {folder} for {name}; docs/export.md says how to load it.")
