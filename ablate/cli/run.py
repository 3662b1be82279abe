"""`ablate run`: train what is missing, resume what was interrupted, print the table."""

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
from ablate.errors import EXIT_INTERRUPTED, EXIT_RUN_FAILED, Interrupted


class Device(str, Enum):
    """Where to train."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def command(
    study: StudyFile,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    rows: Rows = None,
    seeds: Seeds = None,
    device: Annotated[Device, typer.Option("--device", help="auto takes GPUs where there are any.")] = Device.auto,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=1024, metavar="N", help="Runs at once. Unset: one a GPU, or one a core."),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what has failed.")] = False,
) -> None:
    """Train what is missing, resume what was interrupted, and print the table."""
    from rich.console import Console

    from ablate.cli.live import Live
    from ablate.launch import launch
    from ablate.report import publish, render
    from ablate.report.table import table_of

    content, root = study_and_results(study, results, set, rows, seeds)
    console = Console(highlight=False)
    live = Live(content, root, console)
    try:
        with live:
            done = launch(
                content,
                root,
                live,
                device=device.value,
                jobs=jobs,
                retry_failed=retry_failed,
                announce=live.announce,
            )
    except Interrupted:
        console.print("Interrupted. The same command goes on from here.", soft_wrap=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    measured(content, root)
    table = table_of(content, root)
    render.print_rich(table, console, against_paper=False)
    if content.selected:
        console.print(
            f"Not written to {root.study(content.name)}: that is for the study as its file has it.", soft_wrap=True
        )
    else:
        publish.publish(table, root)
    if not done.complete:
        raise typer.Exit(EXIT_RUN_FAILED)
