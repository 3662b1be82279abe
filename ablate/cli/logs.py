"""`ablate logs`: the last lines of the logs of a study's pilots, or of a row's runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot, StudyFile, study_and_results
from ablate.streams import echo

EXAMPLE = "ablate logs study.yaml base"


def command(
    study: StudyFile,
    row: Annotated[
        str | None,
        typer.Argument(
            metavar="[ROW]",
            help="A row: the logs of its runs instead of the pilots'.",
            show_default=False,
        ),
    ] = None,
    results: ResultsRoot = DEFAULT_RESULTS,
    lines: Annotated[
        int, typer.Option("--lines", min=1, metavar="N", help="Lines of each log.")
    ] = 20,
) -> None:
    """Show the last lines of the logs of pilots, or of a row's runs."""
    from ablate.store.jobs import jobs_of
    from ablate.study.select import find_row

    content, root = study_and_results(study, results, None, None, None)
    if row is not None:
        found = find_row(content, row)
        logs = [
            (f"{found.label} seed {run.seed}", root.run(run.id).log)
            for run in content.runs_of(found)
        ]
    else:
        logs = [
            (f"job {job.id}", log)
            for job in jobs_of(root, content.name)
            for log in sorted(job.logs.glob("*.log"), key=_changed)
        ]
    shown = [_show(title, log, lines) for title, log in logs]
    if not any(shown):
        echo(f"{content.name}: no logs yet under {root.root}")


def _changed(log: Path) -> float:
    return log.stat().st_mtime


def _show(title: str, log: Path, count: int) -> bool:
    """Print the end of a log, and return whether the log has a line."""
    from ablate.store.status import last_lines

    found = last_lines(log, count)
    if found:
        echo(f"{title}: {log}")
        echo("\n".join(f"  {line}" for line in found))
    return bool(found)
