"""Options of `ablate run` and `ablate plan` for clusters and for several processes per run, and the
lines that a plan prints for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from ablate.analysis.stages import Stage
from ablate.cli.arguments import option
from ablate.cluster.engines import ENGINES
from ablate.errors import (
    Fault,
    MachineError,
    Mark,
    UsageError,
    ineffective_option,
    not_allowed,
    wrong_option,
)
from ablate.formatting import estimated, plural
from ablate.launch.devices import gpu_groups, gpus_for_run, runs_of_pilot
from ablate.plan.plan import Plan, seconds_on_cluster
from ablate.store import Results
from ablate.store.machine import Device, Resources
from ablate.store.records import Setting

if TYPE_CHECKING:
    from ablate.cluster.engine import Engine


@dataclass(frozen=True)
class PerRun:
    """The options for the number of processes that train each run together."""

    gpus_per_run: Annotated[
        str | None,
        option(
            "Number of GPUs that train each run: 1, 2, 4 ... or auto, if GPUs would be idle.",
            "N|auto",
            show_default="1",
        ),
    ] = None
    processes_per_run: Annotated[
        int | None,
        option(
            "Number of CPU processes that train each run: 1, 2, 4 ...",
            "N",
            min=1,
            max=1024,
            show_default="1",
        ),
    ] = None

    def resources(self, device: Device, here: int | None, jobs: int | None = None) -> Resources:
        """The resources that runs may occupy.

        Args:
            device: device that the user has chosen.
            here: number of GPUs of this machine; None if the runs are for a cluster.
            jobs: number of runs at once that the user has chosen.

        Raises:
            UsageError: the number is no power of two, or does not suit the device.
            MachineError: there is no GPU here.
        """
        if self.gpus_per_run is not None and self.processes_per_run is not None:
            problem = "--gpus-per-run is for GPUs, and --processes-per-run for CPUs"
            raise UsageError(Fault(problem, remedy="give one of them"))
        if self.processes_per_run is not None:
            _power_of_two("--processes-per-run", str(self.processes_per_run))
            if self.processes_per_run == 1:
                return Resources(device=device, jobs=jobs)
            if device == "cuda" or (device == "auto" and here):
                remedy = "add --device cpu, or use --gpus-per-run"
                raise UsageError(Fault("--processes-per-run is for CPUs", remedy=remedy))
            return Resources(device="cpu", jobs=jobs, processes=self.processes_per_run)
        if self.gpus_per_run == "auto":
            return Resources(device=device, jobs=jobs, processes=None)
        count = _power_of_two("--gpus-per-run", self.gpus_per_run or "1")
        if count == 1:
            return Resources(device=device, jobs=jobs)
        remedy = f"--processes-per-run {count} trains each run by {count} processes on the CPU"
        if device == "cpu":
            fault = Fault("--device cpu uses no GPU", remedy=remedy)
            raise wrong_option(f"--gpus-per-run {count}", fault)
        if here == 0:
            fault = Fault("there is no GPU here", remedy=remedy)
            raise MachineError(fault.located(Mark(f"--gpus-per-run {count}")))
        # Not `auto`: with a broken GPU driver, several processes would train on the CPU.
        return Resources(device="cuda", jobs=jobs, processes=count)


def _power_of_two(option: str, text: str) -> int:
    """Read the value of an option.

    Raises:
        UsageError: it is no power of two, or above 1024.
    """
    number = int(text) if text.isdecimal() and text.isascii() else 0
    if number < 1 or number.bit_count() != 1 or number > 1024:
        also = " or auto" if option == "--gpus-per-run" else ""
        raise wrong_option(option, not_allowed(text, f"1, 2, 4, 8 ...{also}"))
    return number


def describe_per_run(resources: Resources, gpus: int, runs: int) -> str | None:
    """A line that says which devices of this machine each run gets; None if each run gets one.

    Raises:
        MachineError: there are too few GPUs.
    """
    processes = resources.processes
    if resources.device == "cpu" or (processes is None and not gpus):
        return f"Each run is trained by {processes} processes." if (processes or 1) > 1 else None
    gpus_each = gpus_for_run(processes, gpus, runs)
    if gpus_each > 1:
        at_once = plural(gpu_groups(gpus, gpus_each), "run")
        return f"Each run is trained on {gpus_each} GPUs, {at_once} at once on {gpus} GPUs."
    if processes:
        return None
    return "--gpus-per-run auto: 1, because there are not two GPUs for each run."


PANEL = "Cluster options"
cluster_option = partial(option, rich_help_panel=PANEL)


@dataclass(frozen=True)
class ClusterOptions:
    """The options for the submission to a cluster."""

    on: Annotated[
        str | None,
        cluster_option(
            f"Submit to {', '.join(ENGINES)}, or a profile of clusters.yaml.", "PROFILE"
        ),
    ] = None
    workers: Annotated[
        int | None,
        cluster_option("With --on: number of pilots, each on one node.", "N", min=1, max=10_000),
    ] = None
    partition: Annotated[
        str | None, cluster_option("With --on: partition of the cluster.", "NAME")
    ] = None
    time: Annotated[
        str | None, cluster_option("With --on: time limit of a pilot, such as 4h.", "TIME")
    ] = None
    gpus_per_node: Annotated[
        int | None, cluster_option("With --on: number of GPUs of each pilot.", "N", min=1)
    ] = None
    sbatch: Annotated[
        list[str] | None,
        cluster_option("With --on: any other option of sbatch. Repeatable.", "OPTION=VALUE"),
    ] = None

    def profile(self) -> Engine | None:
        """The profile that --on names, changed by the other options; None without --on.

        Raises:
            StudyError: the file of profiles has errors.
            UsageError: there is no such profile, or an option is wrong.
        """
        options: dict[str, Setting] = {}
        for name in ("partition", "time", "gpus_per_node"):
            if (value := getattr(self, name)) is not None:
                options[name.replace("_", "-")] = value
        if self.on is None:
            given = [*options, *(name for name in ("workers", "sbatch") if getattr(self, name))]
            if given:
                raise ineffective_option(f"--{given[0]}", "has an effect only with --on")
            return None
        for text in self.sbatch or ():
            name, equals, text_value = text.partition("=")
            options[name.strip().removeprefix("--")] = text_value.strip() if equals else True
        from ablate.cluster.profiles import find_profile  # not for runs on this machine

        return find_profile(self.on, self.workers, options)


def submission_text(
    name: str,
    profile: Engine,
    plan: Plan,
    stage: Stage,
    results: Results,
    resources: Resources,
) -> str:
    """A line on the submission by `ablate run --on`: pilots, options, estimated time."""
    if not stage.missing:
        return f"--on {name}: nothing to submit"
    pilots = min(profile.workers, stage.max_parallel_runs)
    gpus = profile.gpus
    runs_each = runs_of_pilot(plan.study.whole.runs, profile.workers)
    per_run = gpus_for_run(resources.processes, gpus, runs_each)
    runs = plural(len(plan.missing), "run")
    if per_run > 1:
        runs += f", {per_run} {'GPUs' if gpus else 'processes'} for each run"
    time = "time unknown until a run has finished there"
    estimate = seconds_on_cluster(plan, results)
    if estimate is not None:
        seconds, processor = estimate
        time = f"{estimated(seconds / pilots / max(1, gpus))} at the rate of {processor}"
    return f"--on {name}: {plural(pilots, 'pilot')} ({profile.options_text()}) for {runs}, {time}"
