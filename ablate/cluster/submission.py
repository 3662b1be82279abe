"""Submit a study to a cluster: freeze it in a job's folder, submit pilots, and submit again after
they have ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.analysis.settle import settle
from ablate.cluster import ray_cluster, slurm
from ablate.cluster.profiles import Profile
from ablate.errors import AblateError, StoreError
from ablate.formatting import plural
from ablate.launch.disk_space import check_disk_space_of
from ablate.launch.executor import Device
from ablate.launch.missing import MissingRuns, missing_in_stages, stages_of
from ablate.store import Results
from ablate.store.files import write_bytes
from ablate.store.jobs import STOPPED, ClusterJob, JobFolder, Submission, new_job
from ablate.store.status import read_progress
from ablate.study import Selection, Study, read_study

CANCELLED = "cancelled"  # reason of a pilot that somebody has ended through the cluster


@dataclass(frozen=True)
class Submitted:
    """A job that was submitted: its folder, number of pilots, ids of the arrays or driver, id of
    the closing job.
    """

    folder: JobFolder
    pilots: int
    ids: tuple[str, ...]
    closing: str | None


def freeze(
    study: Study,
    results: Results,
    selection: Selection,
    profile: str,
    settings: Profile,
    device: Device = "auto",
    slots: int | None = None,
    processes: int | None = 1,
) -> JobFolder:
    """Write a study and its options into the folder of a new job; edits of the study do not change
    the job.

    Args:
        study: as read with the selection.
        results: root of the results.
        selection: of the command line.
        profile: its name.
        settings: its content.
        device: of the pilots.
        slots: jobs at once of each pilot; None for one on each GPU or core.
        processes: for each run; see `ClusterJob`.
    """
    folder = new_job(results, study.name)
    write_bytes(folder.study, study.text.encode())
    plugins = {plugin for run in study.all_runs() for plugin in study.plugins_of(run)}
    _write_modules(
        folder.study.parent, {one.module: study.plugin_sources[str(one.digest)] for one in plugins}
    )
    job = ClusterJob(
        id=folder.id,
        study=study.name,
        engine=settings.engine,
        profile=profile,
        workers=settings.workers,
        sbatch=settings.sbatch,
        closing=settings.closing,
        setup=tuple(settings.setup),
        grace=settings.grace,
        idle=settings.idle,
        resubmissions=settings.resubmissions,
        # A node's PATH may have another Python first.
        python=sys.executable,
        origin=str(study.path.absolute()),
        overrides=tuple(selection.overrides),
        rows=tuple(selection.rows),
        seeds=selection.seeds,
        # The frozen study is in another folder than its data.
        data_folder=study.data.folder and str(study.data_folder.absolute()),
        # A node whose driver is broken must not train on its CPU.
        device="cuda" if device == "auto" and slurm.asked_gpus(settings) else device,
        slots=slots,
        processes=processes,
        runs=_fixed_runs(study),
        time=time.time(),
        address=settings.address,
        cpus=settings.each.cpus,
        gpus=settings.each.gpus,
        memory=ray_cluster.needed_memory(settings, study) if settings.engine == "ray" else None,
        node_wait=settings.node_wait,
    )
    # Last: a folder without job.json is not a job, so a pilot never sees half of one.
    job.write(folder.job, once=True)
    return folder


def _fixed_runs(study: Study) -> tuple[str, ...]:
    """Ids of the runs that follow from the study alone: all but those of tuned rows."""
    fixed = {run.id for row in study.rows if row.tuning is None for run in study.runs_of(row)}
    fixed.update(run.id for run in (study.tuning.runs() if study.tuning else ()))
    return tuple(run.id for run in study.all_runs() if run.id in fixed)


def _write_modules(folder: Path, sources: Mapping[str, bytes]) -> None:
    """Write the sources of plug-ins where their modules are found, with the packages above them."""
    packages = {
        module[:end] for module in sources for end, letter in enumerate(module) if letter == "."
    }
    # Empty unless a class is in it: only the named modules are part of the study.
    for module, source in {**dict.fromkeys(packages, b""), **sources}.items():
        path = folder.joinpath(*module.split("."))
        write_bytes(path / "__init__.py" if module in packages else path.with_suffix(".py"), source)


def open_job(folder: JobFolder) -> tuple[ClusterJob, Study]:
    """Read a job and its frozen study.

    Raises:
        StoreError: this version of ablate reads other runs from it.
    """
    job = folder.read_job()
    selection = Selection(job.overrides, job.rows, job.seeds, job.data_folder)
    study = settle(read_study(folder.study, selection), folder.results)
    if set(_fixed_runs(study)) != set(job.runs):
        raise StoreError(
            f"{folder.path}: this version of ablate reads other runs from the frozen study; submit "
            f"it again"
        )
    return job, replace(study, path=Path(job.origin))  # relative paths of its data begin there


def submit(folder: JobFolder, job: ClusterJob, study: Study) -> Submitted | None:
    """Submit pilots for the missing runs, at most one for each; None if no run is missing.

    Raises:
        StoreError: the disk is too small.
        UsageError: the cluster refuses.
    """
    missing = missing_in_stages(study, folder.results)
    if not missing.ids:
        return None
    pilots = min(job.workers, missing.at_once)
    for stage in stages_of(study, folder.results):
        of_stage = missing.tuning if stage is study.pending_tuning else missing.rows
        if of_stage:
            check_disk_space_of(stage, folder.results, of_stage, pilots)
    work, number = work_done(study, folder.results), len(folder.read_submissions()) + 1
    ids: tuple[str, ...]
    closing: str | None
    if job.engine == "slurm":
        ids, closing = slurm.submit_pilots(folder, job, pilots)
    else:
        ids, closing = (
            (() if job.engine == "manual" else (ray_cluster.start_driver(folder, job, pilots),)),
            None,
        )
    record = Submission(ids=ids, closing=closing, work=work, time=time.time())
    try:
        record.write(folder.submission(number), once=True)
    except BaseException:  # `ablate stop --now` could not cancel pilots whose ids are not recorded
        if job.engine == "slurm":
            slurm.cancel([*ids, *filter(None, [closing])])
        raise
    return Submitted(folder, pilots, ids, closing)


def _nothing_left(missing: MissingRuns) -> str:
    """Why nothing is left to do."""
    if not missing.waiting:
        return "nothing is left to do"
    return (
        f"tuning runs have failed, and {plural(missing.waiting, 'run')} cannot begin; see `ablate "
        f"status`"
    )


def work_done(study: Study, results: Results) -> int:
    """Steps that the runs of a study have made so far, and one for each result: grows if and only
    if work is done.
    """
    total = 0
    for run in study.all_runs():
        folder = results.run(run.id)
        progress = read_progress(folder)
        total += (progress.step or 0 if progress else 0) + folder.result.exists()
    return total


def submit_again(folder: JobFolder, log: Callable[[str], None]) -> None:
    """After all pilots have ended: submit again if runs are missing, work was done and the bound is
    not reached.
    """
    job, study = open_job(folder)
    submissions, found = folder.read_submissions(), missing_in_stages(study, folder.results)
    missing = found.ids
    here = slurm.Task.here()
    if here is not None and any(here.name == before.closing for before in submissions[:-1]):
        log(
            "submitted again already"
        )  # Slurm repeats this closing job, such as after a failure of its node
        return
    reason = ""
    if not missing:
        reason = _nothing_left(found)
    elif folder.stop.exists():
        reason = STOPPED
    elif job.engine == "manual":
        log(f"{plural(len(missing), 'run')} left for further pilots")
        return
    elif any(report.reason == CANCELLED for report in folder.read_pilots()):
        reason = "the job was cancelled"
    elif len(submissions) > job.resubmissions:
        reason = (
            f"submitted {plural(len(submissions), 'time')}, which is the bound of the profile "
            f"(resubmissions)"
        )
    elif submissions and work_done(study, folder.results) <= submissions[-1].work:
        reason = "no step was made since the last submission; see the logs of the pilots"
    if not reason:
        try:
            submitted = submit(folder, job, study)
            assert submitted is not None
            left = job.resubmissions - len(submissions)
            log(
                f"{plural(len(missing), 'run')} left: submitted again, {plural(left, 'more time')} "
                f"at most"
            )
            return
        except AblateError as error:
            reason = f"not submitted again: {error}"
    folder.close(reason)
    log(f"closed: {reason}")
