"""`ablate export`: convert a trained run to a model of another library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from ablate.cli.arguments import option
from ablate.cli.naming import TrainedRun
from ablate.cli.output import Format
from ablate.stdio import echo, print_json

EXAMPLE = "ablate export study.yaml 'A h=1' --to huggingface --out model"


def command(
    trained: TrainedRun,
    *,
    to: Annotated[
        Literal["huggingface", "ctranslate2"], option("Target format.", show_default=False)
    ],
    out: Annotated[Path, option("Folder for the files; new or empty.", "DIR", show_default=False)],
    format: Format = "text",
) -> None:
    """Convert a trained run to a model of another library."""
    run = trained.find(lacks_text=False)
    from ablate.export import export_run  # loads torch

    name, note = export_run(run.folder, trained.root, to, out, run.row, run.rows)
    if note:
        echo(note, err=True)
    if format == "json":
        print_json({"run": run.folder.id, "library": name, "wrote": [str(out)]})
        return
    echo(f"Wrote {out} for {name}; docs/export.md shows how to load it.")
