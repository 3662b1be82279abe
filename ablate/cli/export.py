"""`ablate export`: convert a trained run to a model of another library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from ablate.cli.arguments import argument, option
from ablate.cli.naming import SeedOfRow, find_finished_run
from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot
from ablate.cli.output import Format
from ablate.errors import UsageError
from ablate.store import Results
from ablate.streams import echo, print_json

EXAMPLE = "ablate export 3f2a model --to huggingface"


def command(
    run: Annotated[
        list[str],
        argument(
            "RUN|STUDY [ROW]",
            "A run's id or its first characters, or a study's YAML file and the row (base if "
            "it is left out).",
        ),
    ],
    folder: Annotated[Path, argument("DIR", "Output folder; new or empty.")],
    to: Annotated[
        Literal["huggingface", "ctranslate2"], option("Target format.", show_default=False)
    ],
    results: ResultsRoot = DEFAULT_RESULTS,
    seed: SeedOfRow = None,
    format: Format = "text",
) -> None:
    """Convert a trained run to a model of another library."""
    if len(run) > 2:
        raise UsageError(
            f"got {len(run) + 1} arguments; give RUN DIR, or STUDY ROW DIR (a label with spaces in "
            f"quotes)"
        )
    named, *row = run
    source, found = find_finished_run(Results(results), named, next(iter(row), None), seed)
    # Imported after the check, since it loads torch.
    from ablate.export import export_run

    name, note = export_run(source, Results(results), to, folder, found)
    if note:
        echo(note, err=True)
    if format == "json":
        print_json({"run": source.id, "library": name, "wrote": [str(folder)]})
        return
    echo(f"Wrote {folder} for {name}; docs/export.md shows how to load it.")
