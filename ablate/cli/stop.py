"""`ablate stop`: end the jobs of a study on a cluster."""

from __future__ import annotations

from typing import Annotated

from ablate.cli.arguments import flag
from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot, StudyFile, StudyOptions
from ablate.cluster.profiles import engine_of
from ablate.errors import AblateError, UsageError
from ablate.formatting import plural
from ablate.store.jobs import STOPPED, open_jobs
from ablate.streams import echo

EXAMPLE = "ablate stop study.yaml"


def command(
    study: StudyFile,
    results: ResultsRoot = DEFAULT_RESULTS,
    now: Annotated[
        bool, flag("--now", "Also cancel the study's Slurm jobs, running and waiting.")
    ] = False,
) -> None:
    """Ask the pilots of a study to save and leave."""
    content, root = StudyOptions(results).read(study)  # its runs may be unreadable
    jobs = open_jobs(root, content.name)
    if not jobs:
        echo(f"{content.name}: no job is open under {root.root}")
    for job in jobs:  # all of them, before anything is read that may be damaged
        job.request_stop()
    refused: list[str] = []
    for job in jobs:
        alive = sum(report.is_alive for report in job.read_pilots())
        echo(f"job {job.id}: {plural(alive, 'pilot')} asked to save and leave")
        try:
            engine, submissions = engine_of(job.read_job()), job.read_submissions()
        except AblateError as error:
            refused += error.lines
            continue
        if engine.queues:
            if not now or not submissions:
                continue  # the closing job follows
            if reason := engine.cancel(submissions[-1]):
                refused.append(f"job {job.id}: {reason}; give the command again")
                continue
            echo(f"job {job.id}: cancelled {', '.join(submissions[-1].all_ids)}")
            job.close(STOPPED.text)
        elif not alive:  # the last pilot or the driver closes the job, and may be gone
            job.close(STOPPED.text)
    if refused:
        raise UsageError(*refused)
