"""Options and messages of `ablate run --on` and `ablate plan --on`: submit a study to a cluster,
and follow it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ablate.cli.options import option
from ablate.errors import StoreError, UsageError
from ablate.formatting import duration, plural

if TYPE_CHECKING:
    from ablate.analysis.stages import Stage
    from ablate.cluster.engine import Engine
    from ablate.plan.plan import Plan
    from ablate.store import Results
    from ablate.store.jobs import Device, JobFolder, Resources
    from ablate.store.records import Setting
    from ablate.study import Selection, Study


@dataclass(frozen=True)
class PerRun:
    """Processes that train each run together, as given on the command line."""

    gpus_per_run: Annotated[
        str | None,
        option(
            "GPUs that train each run together: 1, 2, 4 ... or auto, if GPUs would be idle.",
            "N|auto",
            show_default="1",
        ),
    ] = None
    processes_per_run: Annotated[
        int | None,
        option(
            "Processes that train each run together on a CPU: 1, 2, 4 ...",
            "N",
            min=1,
            max=1024,
            show_default="1",
        ),
    ] = None

    def resolve(self, device: Device, here: int | None) -> tuple[int | None, Device]:
        """(Processes for each run, or None for as many as leave no GPU idle; device). `here` is the
        number of GPUs of this machine; None if the runs are for a cluster.

        Raises:
            UsageError: the number is no power of two, or there are no such devices.
        """
        if self.gpus_per_run is not None and self.processes_per_run is not None:
            raise UsageError(
                "--gpus-per-run is for GPUs, and --processes-per-run for CPUs; give one of them"
            )
        if self.processes_per_run is not None:
            _refuse_other_than_powers("--processes-per-run", str(self.processes_per_run))
            if self.processes_per_run == 1:
                return 1, device
            if device == "cuda" or (device == "auto" and here):
                raise UsageError(
                    "--processes-per-run is for CPUs; add --device cpu, or use --gpus-per-run"
                )
            return self.processes_per_run, "cpu"
        if self.gpus_per_run == "auto":
            return None, device
        count = _refuse_other_than_powers("--gpus-per-run", self.gpus_per_run or "1")
        if count == 1:
            return 1, device
        if device == "cpu" or here == 0:
            reason = "there is no GPU here" if device != "cpu" else "--device cpu uses no GPU"
            raise UsageError(
                f"--gpus-per-run {count}: {reason}; --processes-per-run {count} trains each run "
                f"by {count} processes on the CPU"
            )
        # A broken driver must not make several processes train on the CPU.
        return count, "cuda"


def _refuse_other_than_powers(option: str, text: str) -> int:
    number = int(text) if text.isdecimal() and text.isascii() else 0
    if number < 1 or number.bit_count() != 1 or number > 1024:
        also = " or auto" if option == "--gpus-per-run" else ""
        raise UsageError(f"{option}: {text} is not 1, 2, 4, 8 ...{also}")
    return number


def describe_per_run(processes: int | None, device: Device, gpus: int, runs: int) -> str | None:
    """Line on the devices of this machine that each run gets; None if each run has one.

    Raises:
        UsageError: there are too few GPUs.
    """
    from ablate.launch.devices import gpu_groups, gpus_for_run

    if device == "cpu" or (processes is None and not gpus):
        return f"Each run is trained by {processes} processes." if (processes or 1) > 1 else None
    of_run = gpus_for_run(processes, gpus, runs)
    if of_run > 1:
        at_once = plural(gpu_groups(gpus, of_run), "run")
        return f"Each run is trained on {of_run} GPUs, {at_once} at once on {gpus} GPUs."
    if processes:
        return None
    return "--gpus-per-run auto: 1, because there are not two GPUs for each run."


@dataclass(frozen=True)
class ClusterOptions:
    """The options of the command line that concern a cluster, as given."""

    on: Annotated[
        str | None,
        option(
            "Submit to a cluster: slurm, ray, manual, or a profile of clusters.yaml.", "PROFILE"
        ),
    ] = None
    workers: Annotated[
        int | None, option("With --on: pilots, one a node.", "N", min=1, max=10_000)
    ] = None
    partition: Annotated[str | None, option("With --on: the partition.", "NAME")] = None
    time: Annotated[str | None, option("With --on: time limit of a pilot, such as 4h.", "TIME")] = (
        None
    )
    gpus_per_node: Annotated[int | None, option("With --on: GPUs of each pilot.", "N", min=1)] = (
        None
    )
    sbatch: Annotated[
        list[str] | None,
        option("With --on: any other option of sbatch. Repeatable.", "OPTION=VALUE"),
    ] = None

    def profile(self) -> Engine | None:
        """The profile with these options over it; None without --on.

        Raises:
            StudyError: the file of profiles has errors.
            UsageError: there is no such profile, or an option is wrong.
        """
        options: dict[str, Setting] = {}
        named = (("partition", self.partition), ("time", self.time))
        for name, value in (*named, ("gpus-per-node", self.gpus_per_node)):
            if value is not None:
                options[name] = value
        if self.on is None:
            others = (("workers", self.workers), ("sbatch", self.sbatch))
            given = [*options, *(name for name, value in others if value)]
            if given:
                raise UsageError(f"--{given[0]} has an effect only with --on")
            return None
        from ablate.cluster.profiles import find_profile

        for text in self.sbatch or ():
            name, equals, text_value = text.partition("=")
            options[name.strip().removeprefix("--")] = text_value.strip() if equals else True
        return find_profile(self.on, self.workers, options)


def check(
    profile: Engine, study: Study, processes: int | None = 1, device: Device = "auto"
) -> None:
    """Check that the cluster can give what a profile asks for, and that its pilots have the GPUs of
    a run.

    Raises:
        UsageError: it cannot; a line for each reason.
    """
    if device == "cuda" and profile.gpus_setting and (processes or 1) > profile.gpus:
        raise UsageError(
            f"--gpus-per-run {processes}: a pilot has {plural(profile.gpus, 'GPU')}; set "
            f"{profile.gpus_setting}"
        )
    profile.check(study)


def submission_text(
    name: str,
    profile: Engine,
    plan: Plan,
    stage: Stage,
    results: Results,
    processes: int | None = 1,
) -> str:
    """Submission that `ablate run --on` would make, with its estimated time."""
    from ablate.launch.devices import gpus_for_run, runs_of_pilot
    from ablate.plan.plan import seconds_elsewhere

    if not stage.runs:
        return f"--on {name}: nothing to submit"
    pilots = min(profile.workers, stage.at_once)
    gpus = profile.gpus
    per_run = gpus_for_run(processes, gpus, runs_of_pilot(plan.study.total_runs, profile.workers))
    runs = plural(plan.totals().missing, "run")
    if per_run > 1:
        runs += f", {per_run} {'GPUs' if gpus else 'processes'} for each run"
    time = "time unknown until a run has finished there"
    estimate = seconds_elsewhere(plan, results)
    if estimate is not None:
        seconds, processor = estimate
        time = f"about {duration(seconds / pilots / max(1, gpus))} at the rate of {processor}"
    return f"--on {name}: {plural(pilots, 'pilot')} ({profile.options_text()}) for {runs}, {time}"


def submit_study(
    study: Study,
    results: Results,
    selection: Selection,
    options: ClusterOptions,
    profile: Engine,
    resources: Resources,
    retry_failed: bool,
    log: Callable[[str], None],
) -> JobFolder | None:
    """Prepare the study's data here and submit it; None if no run is missing.

    Raises:
        UsageError: the cluster cannot give what the profile asks for.
    """
    from ablate.analysis.missing import forget_failures, on_some_host
    from ablate.analysis.stages import next_stage
    from ablate.cluster.submission import close_finished, freeze, submit
    from ablate.launch.preparation import prepare_study
    from ablate.store.jobs import open_jobs

    if retry_failed:
        forget_failures(study, results)
    stage = next_stage(study, results, on_some_host)
    if stage.runs:  # else the cluster is not needed
        check(profile, study, resources.processes, resources.device)
    prepare_study(stage.part, results, log)
    if stage.part is not stage.study:  # whose rows wait for this part
        prepare_study(stage.study, results, log)
    close_finished(results, study.name)
    stage = next_stage(study, results, on_some_host)  # the preparation may have taken hours
    if not stage.runs:
        log("nothing to submit: every run has ended")
        return None
    for note in profile.notes():
        log(note)
    for earlier in open_jobs(results, study.name):
        log(f"note: job {earlier.id} of this study is open, too; both work on the same runs")
    assert options.on is not None
    folder = freeze(study, results, selection, options.on, profile, resources)
    try:
        submission = submit(folder, folder.read_job(), study, stage)
    except BaseException as error:
        folder.close(f"not submitted: {error}")
        raise
    pilots, text = plural(submission.pilots, "pilot"), profile.submitted_text(folder, submission)
    log(f"job {folder.id}: {pilots} on {options.on}, {text}")
    log(f"logs: {folder.logs}")
    log(
        f"`ablate status {study.path} --watch` follows it, `ablate stop {study.path}` saves and "
        f"ends it"
    )
    return folder


def job_lines(results: Results, study: str) -> list[str]:
    """The open jobs of a study on clusters, and the last one, each with its pilots."""
    from ablate.store.jobs import jobs_of

    lines: list[str] = []
    jobs = jobs_of(results, study)
    for folder in jobs:
        if folder is jobs[-1] or not folder.is_closed:
            try:
                lines += _lines_of(folder)
            except StoreError as error:
                lines += error.lines
    return lines


def _lines_of(folder: JobFolder) -> list[str]:
    """A job, and each of its pilots."""
    job, end, pilots = folder.read_job(), folder.read_end(), folder.read_pilots()
    counts = Counter(report.phase for report in pilots if report.is_alive)
    working = counts["working"] + counts["saving"]
    if end is not None:
        state = f"closed: {end.reason}"
    else:
        state = f"{plural(working, 'pilot')} working"
        if counts["starting"]:
            state += f", {counts['starting']} starting"
        if waiting := folder.awaited():
            state += f", {waiting} in the queue or about to start"
        if folder.stop_reason() is not None:
            state += ", asked to stop"
    lines = [f"job {folder.id} on {job.profile}: {state}"]
    for report in pilots:
        what = "lost"
        if report.is_alive:
            what = f"{report.phase}, {', '.join(report.running) or 'no run'}"
        elif report.phase == "left":
            what = f"left: {report.reason}"
        ended = f"{plural(report.ended, 'run')} ended"
        if report.starts > 1:
            ended += f", started {report.starts} times"
        lines.append(f"  {report.name} on {report.host}: {what}; {ended}")
    names = {report.name for report in pilots}
    unreadable = [path for path in folder.pilot_files() if path.stem not in names]
    return lines + [f"  {path}: is damaged" for path in unreadable]
