"""`ablate stop`: end the jobs of a study on a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot, StudyFile, study_and_results
from ablate.errors import UsageError
from ablate.formatting import plural
from ablate.streams import echo

EXAMPLE = "ablate stop study.yaml"


def command(
    study: StudyFile,
    results: ResultsRoot = DEFAULT_RESULTS,
    now: Annotated[
        bool, typer.Option("--now", help="Also cancel the study's Slurm jobs, running and waiting.")
    ] = False,
) -> None:
    """Ask the pilots of a study to save and leave."""
    from ablate.cluster import slurm
    from ablate.store.jobs import STOPPED, open_jobs

    content, root = study_and_results(study, results, None, None, None)
    jobs = open_jobs(root, content.name)
    if not jobs:
        echo(f"{content.name}: no job is open under {root.root}")
    refused: list[str] = []
    for job in jobs:  # all of them, before anything is read that may be damaged
        job.request_stop("ablate stop")
    for job in jobs:
        alive = sum(report.is_alive for report in job.read_pilots())
        echo(f"job {job.id}: {plural(alive, 'pilot')} asked to save and leave")
        if job.read_job().engine != "slurm":
            if (
                not alive
            ):  # the last pilot closes the job, or the driver of Ray, which may be gone, too
                job.close(STOPPED)
            continue
        submissions = job.read_submissions()
        if now and submissions:
            ids = [*submissions[-1].ids, *filter(None, [submissions[-1].closing])]
            reason = slurm.cancel(ids)
            if reason:  # the job stays open, so that the command can be given again
                refused.append(f"job {job.id}: scancel: {reason}; give the command again")
                continue
            echo(f"job {job.id}: cancelled Slurm job {', '.join(ids)}")
            job.close(STOPPED)
    if refused:
        raise UsageError(*refused)
