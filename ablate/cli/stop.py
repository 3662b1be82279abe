"""`ablate stop`: end the jobs of a study on a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot, StudyFile, study_and_results
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
    from ablate.launch import slurm
    from ablate.store.jobs import open_jobs

    content, root = study_and_results(study, results, None, None, None)
    jobs = open_jobs(root, content.name)
    if not jobs:
        echo(f"{content.name}: no job is open under {root.root}")
    for job in jobs:
        job.request_stop("ablate stop")
        alive = sum(report.is_alive for report in job.read_pilots())
        echo(f"job {job.id}: {plural(alive, 'pilot')} asked to save and leave")
        submissions = job.read_submissions()
        if now and submissions and job.read_job().engine == "slurm":  # the driver of Ray cancels by itself
            ids = [*submissions[-1].ids, *filter(None, [submissions[-1].closing])]
            cancelled = f"cancelled Slurm job {', '.join(ids)}"
            echo(f"job {job.id}: {slurm.cancel(ids) or cancelled}")
            job.close("stopped on request")
