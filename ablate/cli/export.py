"""`ablate export`: convert a trained run to a model of another library."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot, RunId, find_finished_run
from ablate.store import Results

EXAMPLE = "ablate export 3f2a model --to huggingface"


class Target(str, Enum):
    """Formats to export to."""

    huggingface = "huggingface"
    ctranslate2 = "ctranslate2"


def command(
    run: RunId,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder; new or empty.", show_default=False)],
    to: Annotated[Target, typer.Option("--to", help="Target format.", show_default=False)],
    results: ResultsRoot = DEFAULT_RESULTS,
) -> None:
    """Convert a trained run to a model of another library."""
    source = find_finished_run(Results(results), run)
    # Imported after the check, since it loads torch.
    from ablate.export import export_run

    name = export_run(source, Results(results), to.value, folder)
    typer.echo(f"Wrote {folder} for {name}; docs/export.md shows how to load it.")
