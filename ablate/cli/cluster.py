"""`ablate cluster`: end the jobs of a study on a cluster, and check a shared file system."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.arguments import argument, flag
from ablate.cli.options import DEFAULT_RESULTS, DEFAULT_STUDY, ResultsRoot, StudyFile, StudyOptions
from ablate.cli.output import Format
from ablate.cli.usage import Command, CommandGroup
from ablate.cluster.profiles import engine_of
from ablate.errors import EXIT_RUN_FAILED, AblateError, Fault, UsageError
from ablate.formatting import plural
from ablate.stdio import echo, print_json
from ablate.store.filesystem import check_filesystem
from ablate.store.jobs import STOPPED, JobFolder, open_jobs

app = typer.Typer(cls=CommandGroup, rich_markup_mode="rich", add_completion=False)


@app.callback()
def command() -> None:
    """Stop the jobs of a study on a cluster; check its file system."""


@app.command(cls=Command, epilog="Example: [bold]ablate cluster stop study.yaml[/bold]")
def stop(
    study: StudyFile = DEFAULT_STUDY,
    results: ResultsRoot = DEFAULT_RESULTS,
    now: Annotated[
        bool, flag("--now", "Also cancel the study's Slurm jobs, running and waiting.")
    ] = False,
    format: Format = "text",
) -> None:
    """Ask the pilots of a study to save and leave."""
    content, root = StudyOptions(results).read(study)  # not `open`: a result may be unreadable
    jobs = open_jobs(root, content.name)
    for job in jobs:  # first for all jobs, because reading a damaged one below may fail
        job.request_stop()
    refused: list[str] = []
    stopped = []
    for job in jobs:
        pilots = sum(report.is_alive for report in job.read_pilots())
        if format == "text":
            echo(f"job {job.id}: {plural(pilots, 'pilot')} asked to save and leave")
        cancelled: list[str] = []
        try:
            cancelled = _end_job(job, pilots, now)
        except AblateError as error:
            refused += error.lines
        if cancelled and format == "text":
            echo(f"job {job.id}: cancelled {', '.join(cancelled)}")
        stopped.append({"job": job.id, "pilots": pilots, "cancelled": cancelled})
    if refused:
        raise UsageError(*refused)
    if format == "json":
        print_json({"study": content.name, "jobs": stopped})
    elif not jobs:
        echo(f"{content.name}: no job is open under {root.root}")


def _end_job(job: JobFolder, pilots: int, now: bool) -> list[str]:
    """Close a job if no pilot, driver or closing job will close it. With `now`, first cancel what
    the queue of the cluster holds of the job.

    Returns:
        The ids that were cancelled.

    Raises:
        AblateError: the job cannot be read, or the cluster refuses.
    """
    engine, submissions = engine_of(job.read_job()), job.read_submissions()
    if not engine.queues:
        if not pilots:  # else the last pilot closes the job
            job.close(STOPPED.text)
        return []
    if not now or not submissions:
        return []  # the closing job closes it
    if reason := engine.cancel(submissions[-1]):
        raise UsageError(Fault(f"job {job.id}: {reason}", remedy="give the command again"))
    job.close(STOPPED.text)
    return list(submissions[-1].all_ids)


@app.command(cls=Command, epilog="Example: [bold]ablate cluster check results[/bold]")
def check(
    folder: Annotated[Path, argument("DIR", "A folder of the file system.")],
    format: Format = "text",
) -> None:
    """Check that a folder can hold a results root of several hosts."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder")
    checks = []
    for outcome in check_filesystem(folder):  # printed one by one: together they take a minute
        checks.append(asdict(outcome))
        if format == "text":
            echo(f"{'ok    ' if outcome.passed else 'FAILED'}  {outcome.name}: {outcome.detail}")
    passed = all(outcome["passed"] for outcome in checks)
    if format == "json":
        print_json({"folder": str(folder), "passed": passed, "checks": checks})
    else:
        verdict = "can hold" if passed else "cannot hold"
        echo(f"{folder}: {verdict} a results root of several hosts")
    if not passed:
        raise typer.Exit(EXIT_RUN_FAILED)
