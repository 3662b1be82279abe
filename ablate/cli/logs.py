"""`ablate logs`: the last lines of the logs of a study's pilots, or of a row's runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ablate.analysis.settle import settle
from ablate.cli.arguments import argument, option
from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot, StudyFile, StudyOptions
from ablate.store.jobs import jobs_of
from ablate.store.status import last_lines
from ablate.streams import echo
from ablate.study.select import find_row

EXAMPLE = "ablate logs study.yaml base"


def command(
    study: StudyFile,
    row: Annotated[
        str | None, argument("[ROW]", "A row: the logs of its runs instead of the pilots'.")
    ] = None,
    results: ResultsRoot = DEFAULT_RESULTS,
    lines: Annotated[int, option("Lines of each log.", "N", min=1)] = 20,
) -> None:
    """Show the last lines of the logs of pilots, or of a row's runs."""
    content, root = StudyOptions(results).read(study)
    logs: list[tuple[str, Path]] = []
    if row is not None:
        runs = settle(content, root)
        named = find_row(runs, row)
        for run in runs.of(named):
            logs.append((f"{named.label} seed {run.seed}", root.run(run.id).log))
    else:
        for job in jobs_of(root, content.name):
            files = [log for log in job.logs.glob("*.log") if log.is_file()]
            files.sort(key=lambda log: log.stat().st_mtime)
            logs += [(f"job {job.id}", log) for log in files]
    is_empty = True
    for title, log in logs:
        end = last_lines(log, lines)
        if end:
            is_empty = False
            echo(f"{title}: {log}")
            echo("\n".join(f"  {line}" for line in end))
    if is_empty:
        line = f"{content.name}: no logs yet under {root.root}"
        if row is None and not jobs_of(root, content.name):
            line = f"{content.name}: no pilots; `ablate logs {study} ROW` shows the logs of a row"
        echo(line)
