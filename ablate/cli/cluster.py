"""Options and messages of `ablate run --on` and `ablate plan --on`: submit a study to a cluster,
and follow it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.errors import StoreError, UsageError
from ablate.formatting import duration, plural

if TYPE_CHECKING:
    from ablate.cluster.profiles import Profile
    from ablate.cluster.submission import Submitted
    from ablate.launch.executor import Device
    from ablate.plan.plan import Plan
    from ablate.store import Results
    from ablate.store.jobs import JobFolder
    from ablate.store.records import Setting
    from ablate.study import Selection, Study

On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="PROFILE",
        help="Submit to a cluster: slurm, ray, manual, or a profile of clusters.yaml.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, max=10_000, metavar="N", help="With --on: pilots, one a node."
    ),
]
PartitionName = Annotated[
    str | None, typer.Option("--partition", metavar="NAME", help="With --on: the partition.")
]
TimeLimit = Annotated[
    str | None,
    typer.Option("--time", metavar="TIME", help="With --on: time limit of a pilot, such as 4h."),
]
GpusPerNode = Annotated[
    int | None,
    typer.Option("--gpus-per-node", min=1, metavar="N", help="With --on: GPUs of each pilot."),
]
SbatchOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--sbatch",
        metavar="OPTION=VALUE",
        help="With --on: any other option of sbatch. Repeatable.",
    ),
]
GpusPerRun = Annotated[
    str | None,
    typer.Option(
        "--gpus-per-run",
        metavar="N|auto",
        help="GPUs that train each run together: 1, 2, 4 ... or auto, if GPUs would be idle.",
        show_default="1",
    ),
]
ProcessesPerRun = Annotated[
    int | None,
    typer.Option(
        "--processes-per-run",
        min=1,
        max=1024,
        metavar="N",
        help="Processes that train each run together on a CPU: 1, 2, 4 ...",
        show_default="1",
    ),
]


@dataclass(frozen=True)
class PerRun:
    """Processes that train each run together, as given on the command line.

    gpus: `--gpus-per-run`; processes: `--processes-per-run`; None without the option.
    """

    gpus: str | None
    processes: int | None

    def resolve(self, device: Device, here: int | None) -> tuple[int | None, Device]:
        """(Processes for each run, or None for as many as leave no GPU idle; device).

        Args:
            device: as given.
            here: number of GPUs of this machine; None if the runs are for a cluster.

        Raises:
            UsageError: the number is no power of two, or there are no such devices.
        """
        if self.gpus is not None and self.processes is not None:
            raise UsageError(
                "--gpus-per-run is for GPUs, and --processes-per-run for CPUs; give one of them"
            )
        if self.processes is not None:
            _refuse_other_than_powers("--processes-per-run", str(self.processes))
            if self.processes > 1 and (device == "cuda" or (device == "auto" and here)):
                raise UsageError(
                    "--processes-per-run is for CPUs; add --device cpu, or use --gpus-per-run"
                )
            return self.processes, "cpu" if self.processes > 1 else device
        if self.gpus == "auto":
            return None, device
        count = 1 if self.gpus is None else _refuse_other_than_powers("--gpus-per-run", self.gpus)
        if count > 1 and (device == "cpu" or here == 0):
            reason = "there is no GPU here" if device != "cpu" else "--device cpu uses no GPU"
            raise UsageError(
                f"--gpus-per-run {count}: {reason}; --processes-per-run {count} trains each run by "
                f"{count} processes "
                "on the CPU"
            )
        return (
            count,
            "cuda" if count > 1 else device,
        )  # a broken driver must not make them train on the CPU


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
    each = gpus_for_run(processes, gpus, runs)
    if each == 1:
        return (
            None
            if processes
            else "--gpus-per-run auto: 1, because there are not two GPUs for each run."
        )
    return (
        f"Each run is trained on {each} GPUs, {plural(gpu_groups(gpus, each), 'run')} at once on "
        f"{gpus} GPUs."
    )


@dataclass(frozen=True)
class ClusterOptions:
    """The options of the command line that concern a cluster, as given."""

    on: str | None
    workers: int | None = None
    partition: str | None = None
    time: str | None = None
    gpus_per_node: int | None = None
    sbatch: tuple[str, ...] = ()

    def profile(self) -> Profile | None:
        """The profile with these options over it; None without --on.

        Raises:
            StudyError: the file of profiles has errors.
            UsageError: there is no such profile, or an option is wrong.
        """
        named: dict[str, Setting] = {
            "partition": self.partition, "time": self.time, "gpus-per-node": self.gpus_per_node,
        }  # fmt: skip
        options = {name: value for name, value in named.items() if value is not None}
        if self.on is None:
            given = [
                *options,
                *(["workers"] if self.workers else []),
                *(["sbatch"] if self.sbatch else []),
            ]
            if given:
                raise UsageError(f"--{given[0]} has an effect only with --on")
            return None
        from ablate.cluster.profiles import find_profile

        for text in self.sbatch:
            name, equals, value = text.partition("=")
            options[name.strip().removeprefix("--")] = value.strip() if equals else True
        return find_profile(self.on, self.workers, options)


def check(
    profile: Profile, study: Study, processes: int | None = 1, device: Device = "auto"
) -> None:
    """Check that the cluster can give what a profile asks for, and that its pilots have the GPUs of
    a run.

    Raises:
        UsageError: it cannot; a line for each reason.
    """
    from ablate.cluster.slurm import asked_gpus, partitions, refusals, require_slurm
    from ablate.launch.devices import SMALLEST_MICRO_BATCH, sizing_memory

    if profile.engine == "manual":
        return
    gpus = asked_gpus(profile)
    if device == "cuda" and (processes or 1) > gpus:
        option = "gpus-per-node" if profile.engine == "slurm" else "each: {gpus: N} in its profile"
        raise UsageError(
            f"--gpus-per-run {processes}: a pilot has {plural(gpus, 'GPU')}; set {option}"
        )
    if profile.engine == "ray":
        from ablate.cluster.ray_cluster import needed_memory, require_ray

        require_ray()
        needed_memory(profile, study)
        return
    require_slurm()
    needed = max(
        sizing_memory(run.config, run.data.vocab_size, SMALLEST_MICRO_BATCH)
        for run in study.all_runs()
    )
    faults = refusals(profile, partitions(), needed)
    if faults:
        raise UsageError(*faults)


def describe(
    name: str, profile: Profile, plan: Plan, results: Results, processes: int | None = 1
) -> str:
    """Submission that `ablate run --on` would make, with its estimated time."""
    from ablate.cluster.profiles import sbatch_arguments
    from ablate.cluster.slurm import asked_gpus
    from ablate.launch.devices import gpus_for_run, runs_of_pilot
    from ablate.plan.plan import seconds_elsewhere

    missing = plan.totals().missing
    tuning = plan.missing_tuning
    pilots = min(profile.workers, max(tuning, missing - tuning))
    if not pilots:
        return f"--on {name}: nothing to submit"
    options = " ".join(sbatch_arguments(profile.sbatch)) or f"{profile.engine}, default options"
    if profile.engine == "ray":
        each = f"{plural(profile.each.cpus, 'core')}, {plural(profile.each.gpus, 'GPU')} each"
        options = f"ray at {profile.address}, {each}"
    estimate = seconds_elsewhere(plan, results)
    gpus = asked_gpus(profile)
    if estimate is None:
        time = "time unknown until a run has finished there"
    else:
        seconds, processor = estimate
        time = f"about {duration(seconds / pilots / max(1, gpus))} at the rate of {processor}"
    per_run = gpus_for_run(processes, gpus, runs_of_pilot(plan.study.total_runs, profile.workers))
    together = f", {per_run} {'GPUs' if gpus else 'processes'} for each run" if per_run > 1 else ""
    return (
        f"--on {name}: {plural(pilots, 'pilot')} ({options}) for "
        f"{plural(missing, 'run')}{together}, {time}"
    )


def submit_study(
    study: Study,
    results: Results,
    selection: Selection,
    options: ClusterOptions,
    profile: Profile,
    *,
    device: Device,
    jobs: int | None,
    processes: int | None,
    retry_failed: bool,
    log: Callable[[str], None],
) -> JobFolder | None:
    """Prepare the study's data here and submit it; None if no run is missing.

    Raises:
        UsageError: the cluster cannot give what the profile asks for.
    """
    from ablate.cluster.submission import freeze, submit
    from ablate.launch.missing import missing_in_stages, stages_of
    from ablate.launch.preparation import prepare
    from ablate.store.jobs import open_jobs

    if missing_in_stages(study, results, retry_failed).ids:  # else the cluster is not needed
        check(profile, study, processes, device)
    for stage in stages_of(study, results):
        prepare(stage, results, log)
    if retry_failed:
        for id in missing_in_stages(study, results, retry_failed=True).ids:
            results.run(id).failure.unlink(missing_ok=True)
    if not missing_in_stages(study, results).ids:
        log("nothing to submit: every run has ended")
        return None
    for other in open_jobs(results, study.name):
        log(f"note: job {other.id} of this study is open, too; both work on the same runs")
    assert options.on is not None
    folder = freeze(
        study,
        results,
        selection,
        options.on,
        profile,
        device=device,
        slots=jobs,
        processes=processes,
    )
    try:
        submitted = submit(folder, folder.read_job(), study)
    except BaseException as error:
        folder.close(f"not submitted: {error}")
        raise
    assert submitted is not None
    for line in submission_lines(submitted, options.on, study, folder):
        log(line)
    return folder


def _arrays(ids: tuple[str, ...]) -> str:
    return f"{'array' if len(ids) == 1 else 'arrays'} {', '.join(ids)}"


def submission_lines(
    submitted: Submitted, profile: str, study: Study, folder: JobFolder
) -> list[str]:
    """Lines printed after a submission."""
    if not submitted.ids:
        return [
            f"job {folder.id}: ready for {plural(submitted.pilots, 'pilot')}; start them with",
            f"ablate work --job {folder.path}",
        ]
    if submitted.closing is None:
        cluster = f"driver {submitted.ids[0]} on this host prints the table at the end"
    else:
        cluster = (
            f"{_arrays(submitted.ids)} of Slurm; job {submitted.closing} prints the table at the "
            f"end"
        )
    return [
        f"job {folder.id}: {plural(submitted.pilots, 'pilot')} on {profile}, {cluster}",
        f"logs: {folder.logs}",
        f"`ablate status {study.path} --watch` follows it, `ablate stop {study.path}` saves and "
        f"ends it",
    ]


def job_lines(results: Results, study: str) -> list[str]:
    """The jobs of a study on clusters: those that are open, and the last one, each with its
    pilots.
    """
    from ablate.store.jobs import jobs_of

    lines: list[str] = []
    jobs = jobs_of(results, study)
    for folder in jobs:
        if folder.is_closed and folder is not jobs[-1]:
            continue
        try:
            job, end = folder.read_job(), folder.read_end()
        except StoreError as error:
            lines += error.lines
            continue
        pilots = folder.read_pilots()
        alive = [report for report in pilots if report.is_alive]
        state = f"closed: {end.reason}" if end else f"{plural(len(alive), 'pilot')} working"
        stopping = ", asked to stop" if folder.stop.exists() and not end else ""
        lines.append(f"job {folder.id} on {job.profile}: {state}{stopping}")
        for report in pilots:
            starts = f", started {report.starts} times" if report.starts > 1 else ""
            if report.is_alive:
                what = f"{report.phase}, {', '.join(report.running) or 'no run'}"
            else:
                what = f"left: {report.reason}" if report.phase == "left" else "lost"
            lines.append(
                f"  {report.name} on {report.host}: {what}; {plural(report.ended, 'run')} "
                f"ended{starts}"
            )
    return lines
