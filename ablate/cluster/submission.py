"""Submit a study to a cluster: copy it into the folder of a new job, submit pilots, and submit
again if runs are missing when the pilots have ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ablate.analysis.missing import on_some_host
from ablate.analysis.stages import Stage, next_stage
from ablate.analysis.tuning_runs import tuning_runs_of, with_tuning_runs
from ablate.cluster.engine import Engine
from ablate.cluster.profiles import engine_of
from ablate.errors import AblateError, Fault, StoreError
from ablate.formatting import plural
from ablate.plan.resources import refuse_full_disk
from ablate.store import Results, RunFolder, none_if_unreadable
from ablate.store.files import write_bytes
from ablate.store.jobs import (
    CANCELLED,
    NOTHING_LEFT,
    STOPPED,
    ClusterJob,
    JobFolder,
    Submission,
    new_job,
    open_jobs,
)
from ablate.store.machine import Resources
from ablate.study import Runs, Selection, Study, read_study, runs_of


def submit_study(
    stage: Stage,
    results: Results,
    selection: Selection,
    name: str,
    profile: Engine,
    resources: Resources,
    log: Callable[[str], None],
) -> JobFolder:
    """Submit a study, whose runs were prepared on this host, and return the folder of the job.

    Args:
        stage: stage of the study, with the missing runs that pilots on any host may train.
        results: the results root.
        selection: the selection with which the study was read.
        name: name of the profile.
        profile: the cluster and the settings of the submission.
        resources: devices and processes for the runs of each pilot.
        log: receives what was submitted, and how to follow it.

    Raises:
        UsageError: the cluster refuses.
    """
    study = stage.study
    runs = stage.all_runs
    for note in profile.notes():
        log(note)
    for earlier in open_jobs(results, study.name):
        log(f"note: job {earlier.id} of this study is open too; both jobs work on the same runs")
    folder = freeze(study, results, selection, name, profile.resolved(runs), resources)
    try:
        submission = submit(folder, folder.read_job(), stage)
    except BaseException as error:
        folder.close(f"not submitted: {error}")
        raise
    pilots = plural(submission.pilots, "pilot")
    log(f"job {folder.id}: {pilots} on {name}, {profile.submitted_text(folder, submission)}")
    log(f"logs: {folder.logs}")
    log(
        f"`{results.command('status', study.path, '--watch')}` follows it, "
        f"`{results.command('cluster', 'stop', study.path)}` saves and ends it"
    )
    return folder


def freeze(
    study: Study,
    results: Results,
    selection: Selection,
    profile: str,
    engine: Engine,
    resources: Resources,
) -> JobFolder:
    """Write a study and its selection into the folder of a new job, so that later edits of the
    study do not change the job. `profile` is the name of the settings in `engine`.
    """
    if resources.device == "auto" and engine.gpus:
        # So that a node with a broken GPU driver does not train on its CPU.
        resources = resources.model_copy(update={"device": "cuda"})
    folder = new_job(results, study.name)
    write_bytes(folder.study, study.source.text.encode())
    sources = {}
    for custom in study.custom_classes:
        sources[custom.module] = study.source.classes[str(custom.digest)]
    _write_modules(folder.study.parent, sources)
    job = ClusterJob(
        id=folder.id,
        study=study.name,
        profile=profile,
        settings=engine.model_dump(mode="json"),
        # The absolute path, because another Python may be first on the PATH of a node.
        python=sys.executable,
        origin=str(study.path.absolute()),
        overrides=tuple(selection.overrides),
        rows=tuple(selection.rows),
        seeds=selection.seeds,
        # The copy of the study is in another folder, from which a relative path would be wrong.
        data_folder=study.data.folder and str(study.data_folder.absolute()),
        resources=resources,
        runs=_fixed_runs(study),
        time=time.time(),
    )
    # Last: a folder without job.json is not a job, so that no pilot reads an incomplete job.
    job.write(folder.job, once=True)
    return folder


def _fixed_runs(study: Study) -> tuple[str, ...]:
    """Ids of the runs that do not depend on results: tuning runs, and runs of rows without them."""
    runs = runs_of(study)
    fixed = runs.with_rows({row.label for row in study.rows if row.choice is None})
    return tuple(dict.fromkeys(run.id for run in (*(tuning_runs_of(runs) or ()), *fixed)))


def _write_modules(folder: Path, sources: Mapping[str, bytes]) -> None:
    """Write the sources of users' classes, so that Python can import them from the folder."""
    packages: set[str] = set()
    for module in sources:
        parts = module.split(".")
        packages.update(".".join(parts[:end]) for end in range(1, len(parts)))
    # A package is empty unless a class is in it: the study names only modules with classes.
    for module, source in {**dict.fromkeys(packages, b""), **sources}.items():
        path = folder.joinpath(*module.split("."))
        write_bytes(path / "__init__.py" if module in packages else path.with_suffix(".py"), source)


def open_job(folder: JobFolder) -> tuple[ClusterJob, Study]:
    """Read a job and its copy of the study.

    Raises:
        StoreError: the job is damaged, or this version of ablate reads other runs from the study.
    """
    job = folder.read_job()
    selection = Selection(
        job.overrides, job.rows, job.seeds, job.data_folder, origin=Path(job.origin)
    )
    study = read_study(folder.study, selection)
    if set(_fixed_runs(study)) != set(job.runs):
        problem = "this version of ablate reads other runs from the frozen study"
        raise StoreError(Fault(f"{folder.path}: {problem}", remedy="submit it again"))
    return job, study


def submit(folder: JobFolder, job: ClusterJob, stage: Stage) -> Submission:
    """Submit pilots for the missing runs of a stage, at most one for each.

    Raises:
        StoreError: the disk is too small.
        UsageError: the cluster refuses.
    """
    engine = engine_of(job)
    pilots = min(engine.workers, stage.max_parallel_runs)
    refuse_full_disk(stage.known_runs, folder.results, pilots)
    number = len(folder.read_submissions()) + 1
    work = work_done(stage.planned, folder.results)
    ids, closing = engine.submit(folder, job, pilots)
    record = Submission(pilots=pilots, ids=ids, closing=closing, work=work, time=time.time())
    try:
        record.write(folder.submission(number), once=True)
    except BaseException:
        engine.cancel(record)  # without their recorded ids, nobody could cancel the pilots
        raise
    return record


def is_over(study: Study, results: Results) -> bool:
    """Whether no host has runs of the study left to train."""
    return not next_stage(study, results, on_some_host).missing


def work_done(planned: Runs, results: Results) -> int:
    """Number of steps that the runs and their tuning runs have made, plus one for each result."""
    total = 0
    for run in with_tuning_runs(planned):
        folder = results.run(run.id)
        total += steps_of(folder) + folder.has_result
    return total


def steps_of(folder: RunFolder) -> int:
    """The last step that a run has reported; 0 before the first report."""
    progress = none_if_unreadable(folder.read_progress)
    if progress is None or progress.step is None:
        return 0
    return progress.step


def submit_again(folder: JobFolder, log: Callable[[str], None]) -> str | None:
    """Submit a job again after all of its pilots have ended, if runs are missing, steps were made
    since the last submission, and the profile allows it.

    Returns:
        Why the job must be closed; None if it goes on.
    """
    job, study = open_job(folder)
    engine = engine_of(job)
    stage = next_stage(study, folder.results, on_some_host)
    submissions = folder.read_submissions()
    if not stage.missing:
        return stage.obstacle or NOTHING_LEFT.text
    if folder.stop_reason() is not None:
        return STOPPED.text
    if not engine.submits_again:
        log("runs are left for further pilots")
        return None
    this_job = engine.allocation().name
    if any(earlier.closing == this_job for earlier in submissions[:-1]):
        # Slurm repeats a closing job, such as after a failure of its node.
        log("submitted again already")
        return None
    if any(report.left_for == CANCELLED.kind for report in folder.read_pilots()):
        return "the job was cancelled"
    if len(submissions) > engine.resubmissions:
        times = plural(len(submissions), "time")
        return f"submitted {times}, which is the bound of the profile (resubmissions)"
    if submissions and work_done(stage.planned, folder.results) <= submissions[-1].work:
        return "no step was made since the last submission; see the logs of the pilots"
    try:
        submit(folder, job, stage)
    except AblateError as error:
        return f"not submitted again: {error}"
    left = plural(engine.resubmissions - len(submissions), "more time")
    log(f"{plural(len(stage.missing), 'run')} left: submitted again, {left} at most")
    return None


def close_finished(results: Results, study: str) -> None:
    """Close the jobs of a study that have no pilot, if no run is missing."""
    for folder in open_jobs(results, study):
        try:
            if any(report.is_alive for report in folder.read_pilots()):
                continue
            _, frozen = open_job(folder)
            if is_over(frozen, results):
                folder.close(NOTHING_LEFT.text)
        except AblateError:  # a damaged job; `ablate status` shows it
            continue
