"""Where and in which form commands print: text for people, or one JSON document for programs."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ablate.cli.arguments import flag, option
from ablate.stdio import echo, new_console, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from ablate.table.table import Table

Format = Annotated[Literal["text", "json"], option("Output for people (text) or programs (json).")]

Quiet = Annotated[bool, flag("--quiet", "Print results and faults, and no progress.")]


def progress_console(quiet: bool) -> Console:
    """The console for progress: standard error; with `--quiet` a console that prints nothing."""
    if quiet:
        return new_console(file=io.StringIO(), quiet=True)  # not a terminal, so nothing is drawn
    return new_console(err=True)


def print_written(paths: Iterable[Path], format: Format) -> None:
    """Print the paths of files and folders that a command has written."""
    if format == "json":
        print_json({"wrote": [str(path) for path in paths]})
        return
    for path in paths:
        echo(f"Wrote {path}")


def print_faults(table: Table) -> None:
    """Print a line for each damaged or unreadable file of a table on standard error."""
    for line in table.experiment.notes.faults:
        echo(line, err=True)
