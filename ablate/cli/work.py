"""`ablate work`: the process of a pilot on a node of a cluster, or of the closing job. Clusters
start it, not people.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from ablate.analysis.choices import runs_with_choices
from ablate.cli.arguments import flag, option
from ablate.cli.scoring import scored_outcome
from ablate.cluster.pilot import is_last_pilot, work
from ablate.cluster.profiles import engine_of
from ablate.cluster.ray_cluster import leave_with_input
from ablate.cluster.submission import close_finished, open_job, submit_again
from ablate.errors import EXIT_INTERRUPTED, EXIT_RUN_FAILED
from ablate.launch.launch import outcome_of_launch
from ablate.publication.folder import publish_results
from ablate.stdio import echo, new_console
from ablate.store.jobs import JobFolder
from ablate.table import render

EXAMPLE = "ablate work --job results/table3/jobs/20260102-030405"


def command(
    job: Annotated[Path, option("Folder of the job.", "DIR", file_okay=False, show_default=False)],
    index: Annotated[int, option("Number of this pilot in the job, from 0.", "N", min=0)] = 0,
    close: Annotated[
        bool, flag("--close", "Print the table, and submit the remaining runs again.")
    ] = False,
    attached: Annotated[
        bool, flag("--attached", "Save and leave when standard input ends.")
    ] = False,
    drive: Annotated[
        int | None, option("Run N pilots as tasks of Ray, then --close.", "N", min=1)
    ] = None,
) -> None:
    """Work on a job of `ablate run --on` until no run is left for this pilot."""
    folder = JobFolder(job.absolute())
    if close:
        raise typer.Exit(_close(folder))
    if drive is not None:
        raise typer.Exit(_drive(folder, drive))
    if attached:
        threading.Thread(target=leave_with_input, name="input", daemon=True).start()

    code = work(folder, index, _log)
    if is_last_pilot(folder):
        # Without its exit code: if a run has failed, Kubernetes would start this pilot again.
        _close(folder)
    raise typer.Exit(code)


def _log(line: str) -> None:
    """Print a line with the time. It is flushed, because the cluster may kill this process."""
    echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")


def _drive(folder: JobFolder, pilots: int) -> int:
    """Run pilots as tasks of Ray, then close the job; the exit code."""
    job = folder.read_job()
    if engine_of(job).drive(folder, job.python, pilots, _log):
        return _close(folder)
    folder.close("the driver was ended by a signal")
    return EXIT_INTERRUPTED


def _close(folder: JobFolder) -> int:
    """Print the table, submit again if runs are missing, and publish the table.

    The job is closed last, so that a process that waits for its end finds the table.

    Returns:
        The exit code: 1 if a run has no result.
    """
    _, study = open_job(folder)
    planned = runs_with_choices(study, folder.results)
    outcome = scored_outcome(planned, folder.results)
    render.print_rich(outcome.table, new_console(width=160), against_paper=False)
    reason = submit_again(folder, _log)
    try:
        if not study.source.is_modified:  # the published table belongs to the whole study
            publish_results(planned, outcome, folder.results)
    finally:  # the job is also closed if the results cannot be published
        if reason is not None:
            folder.close(reason)
            _log(f"closed: {reason}")
    close_finished(folder.results, study.name)
    states = outcome_of_launch(outcome.planned, folder.results)
    finished = states["done"] + states["diverged"]  # to diverge is a result
    return EXIT_RUN_FAILED if finished < states.total() else 0
