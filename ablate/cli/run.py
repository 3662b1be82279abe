"""`ablate run`: train missing runs, resume interrupted ones, print the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ablate.cli.cluster import (
    ClusterOptions,
    GpusPerNode,
    GpusPerRun,
    On,
    PartitionName,
    PerRun,
    ProcessesPerRun,
    SbatchOptions,
    TimeLimit,
    Workers,
    submit_study,
)
from ablate.cli.options import (
    DEFAULT_RESULTS,
    BudgetText,
    Device,
    DeviceOption,
    Offline,
    Overrides,
    ResultsRoot,
    Rows,
    Seeds,
    StudyFile,
    go_offline,
    print_notes,
    score_missing,
    study_and_results,
    study_so_far,
    study_to_plan,
)
from ablate.errors import EXIT_INTERRUPTED, EXIT_RUN_FAILED, Interrupted, StoreError, UsageError
from ablate.formatting import plural
from ablate.streams import echo, new_console

if TYPE_CHECKING:
    from rich.console import Console

    from ablate.cli.live import LiveView
    from ablate.cluster.engine import Engine
    from ablate.launch import Launch
    from ablate.loggers import Logger
    from ablate.plan.budget import Budget
    from ablate.store import Results
    from ablate.store.jobs import JobFolder
    from ablate.study import Selection, Study

MAX_JOBS = 1024
EXAMPLE = "ablate run study.yaml --budget 8h --log tensorboard"


def command(
    study: StudyFile,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    rows: Rows = None,
    seeds: Seeds = None,
    device: DeviceOption = Device.auto,
    jobs: Annotated[
        str | None,
        typer.Option(
            "--jobs",
            metavar="N|auto",
            help="Jobs at once; auto: as many as fit on each GPU.",
            show_default="one per GPU, or per CPU core",
        ),
    ] = None,
    gpus_per_run: GpusPerRun = None,
    processes_per_run: ProcessesPerRun = None,
    offline: Offline = False,
    budget: BudgetText = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            metavar="LOGGER",
            envvar="ABLATE_LOG",
            help="Also log to tensorboard, mlflow or wandb. Repeatable.",
        ),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed runs again.")
    ] = False,
    on: On = None,
    workers: Workers = None,
    partition: PartitionName = None,
    time_limit: TimeLimit = None,
    gpus_per_node: GpusPerNode = None,
    sbatch: SbatchOptions = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="With --on: return after the submission.")
    ] = False,
) -> None:
    """Train missing runs, resume interrupted ones, and print the table."""
    from ablate.analysis.looks import record_judgment
    from ablate.analysis.settle import settle
    from ablate.analysis.table import table_of
    from ablate.loggers import select_loggers
    from ablate.plan.budget import Budget, base_alone
    from ablate.plan.plan import plan_of
    from ablate.plan.resources import resource_faults
    from ablate.report import publish, render
    from ablate.store.machine import visible_gpus
    from ablate.study import Selection

    go_offline(offline)
    # Options are checked before the study is read, and the study before anything is downloaded or
    # trained.
    loggers = select_loggers(log or ())
    limit = None if budget is None else Budget.parse(budget)
    cluster = ClusterOptions(on, workers, partition, time_limit, gpus_per_node, tuple(sbatch or ()))
    profile = cluster.profile()
    processes, used = PerRun(gpus_per_run, processes_per_run).resolve(
        device.value, visible_gpus() if profile is None else None
    )
    at_once = parse_jobs(jobs, processes, on_cluster=profile is not None)
    _refuse_without_effect(profile is not None, detach, limit is not None, bool(loggers))
    content, root = study_and_results(study, results, set, rows, seeds, may_be_new=True)
    publish.refuse_other_study(content, root)
    print_notes(content)
    part = content if limit is None else base_alone(content)
    plan = plan_of(part, root, "cpu" if device is Device.cpu else None, processes or 1)
    jobs_at_once = at_once if isinstance(at_once, int) else None
    pilots = None if profile is None else profile.workers
    faults = resource_faults(plan, study_so_far(part, root), root, jobs_at_once, pilots)
    if faults:
        raise StoreError(*faults)
    console = new_console()
    if content.custom_classes:
        named = ", ".join(
            f"{one.module}:{one.name} ({one.digest})" for one in content.custom_classes
        )
        echo(f"Executing the custom classes of the study: {named}")
    launcher = _Launcher(content, root, console, loggers, used, at_once, processes, retry_failed)
    try:
        if profile is not None:
            selection = Selection(set or (), rows or (), seeds)
            outcome = launcher.submit_and_watch(cluster, profile, selection, detach)
        elif limit is None:
            outcome = launcher.train(content)
        else:
            outcome = _train_within(limit, launcher.gpus, content, root, launcher.train)
    except Interrupted:
        console.print(
            _interrupted_line(content, root, on_cluster=profile is not None), soft_wrap=True
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    content = settle(content, root)
    table = table_of(content, root, score_missing(content, root))
    render.print_rich(table, console, against_paper=False)
    if content.is_modified:  # the published table belongs to the whole study
        console.print(
            f"{root.study(content.name)} is not updated: --set, --rows and --seeds change the "
            f"study.",
            soft_wrap=True,
        )
    else:
        publish.claim(content, root)
        publish.publish(table, root)
        record_judgment(content, root)
    if failed := outcome.states["failed"]:
        remedy = "`ablate status` says why, and --retry-failed runs again what has failed."
        console.print(f"{plural(failed, 'run')} failed: {remedy}", soft_wrap=True)
    if not outcome.complete:
        raise typer.Exit(EXIT_RUN_FAILED)


@dataclass(frozen=True)
class _Launcher:
    """Executes parts of a study on this machine, or submits the study to a cluster, with live
    progress.

    at_once: number of jobs at once; None for the executor's default.
    processes: for each run; None for as many as leave no GPU idle.
    """

    study: Study
    root: Results
    console: Console
    loggers: Mapping[str, Callable[[Path], Logger]]
    device: Literal["auto", "cpu", "cuda"]
    at_once: int | Literal["auto"] | None
    processes: int | None
    retry_failed: bool

    @property
    def gpus(self) -> int:
        """Number of GPUs of this machine that runs occupy at the same time."""
        from ablate.launch.devices import gpus_for_run
        from ablate.store.machine import visible_gpus

        gpus = 0 if self.device == "cpu" else visible_gpus()
        if isinstance(self.at_once, int):  # which may leave some GPUs unused
            gpus = min(
                gpus, self.at_once * gpus_for_run(self.processes, gpus, self.study.total_runs)
            )
        return gpus

    def train(self, part: Study) -> Launch:
        """Execute the tuning runs, if some are missing, and then the runs of the chosen
        configurations.
        """
        from ablate.launch import launch_stages

        if part.pending_tuning is not None:
            runs, rows = (
                part.pending_tuning.total_runs,
                sum(row.tuning is not None for row in part.rows),
            )
            self.console.print(
                f"{plural(runs, 'tuning run')} for {plural(rows, 'row')}, then the runs themselves."
            )
        return launch_stages(
            part, self.root, self._execute, lambda line: self.console.print(line, soft_wrap=True)
        )

    def _execute(self, part: Study) -> Launch:
        from ablate.launch import launch

        with self._view(part) as view:
            return launch(
                part,
                self.root,
                view,
                device=self.device,
                jobs=self.at_once,
                processes=self.processes,
                retry_failed=self.retry_failed,
                announce=view.announce,
                log=view.log,
            )

    def submit_and_watch(
        self, cluster: ClusterOptions, profile: Engine, selection: Selection, detach: bool
    ) -> Launch:
        """Submit the study to a cluster and follow its job to the end; with `detach`, exit after
        the submission.
        """
        from ablate.analysis.settle import settle
        from ablate.launch import outcome_of_launch
        from ablate.report import publish

        publish.claim(self.study, self.root)  # the closing job publishes
        first = self.study.pending_tuning or self.study
        with self._view(first) as view:
            job = submit_study(
                self.study,
                self.root,
                selection,
                cluster,
                profile,
                device=self.device,
                jobs=None if self.at_once == "auto" else self.at_once,
                processes=self.processes,
                retry_failed=self.retry_failed,
                log=view.log,
            )
            if detach:
                raise typer.Exit
            if job is not None:
                view.watch(lambda: job.is_closed, lambda: _is_retried(job, first))
        chosen = settle(self.study, self.root)
        if job is not None and first is not self.study:
            with self._view(chosen) as view:
                view.watch(lambda: job.is_closed, lambda: _is_retried(job, chosen))
        return outcome_of_launch(study_so_far(chosen, self.root), self.root)

    @contextmanager
    def _view(self, part: Study) -> Iterator[LiveView]:
        """Live progress of a part of the study, whose metrics are copied to the loggers
        meanwhile.
        """
        from ablate.cli.live import LiveView
        from ablate.loggers import Mirror

        with (
            LiveView(part, self.root, self.console) as view,
            Mirror(part, self.root, self.loggers, view.log),
        ):
            yield view


def _is_retried(job: JobFolder, part: Study) -> bool:
    """Whether a pilot of a job may try a failed run of a part of its study once more, on another
    host.
    """
    from ablate.store.status import read_failure

    if not any(report.is_alive for report in job.read_pilots()):
        return False
    failures = (read_failure(job.results.run(run.id)) for run in part.runs())
    return any(failure.may_succeed_elsewhere for failure in failures if failure is not None)


def _interrupted_line(study: Study, root: Results, on_cluster: bool) -> str:
    """The last line of an interrupted command: what is saved, and how to go on."""
    from ablate.analysis.settle import settle
    from ablate.plan.progress import saved_line

    if on_cluster:
        return f"The job goes on without this command; `ablate stop {study.path}` ends it."
    study = settle(study, root)
    saved = saved_line(study.pending_tuning or study_so_far(study, root), root)
    return f"Interrupted: {saved}. The same command resumes."


def parse_jobs(
    text: str | None, processes: int | None, on_cluster: bool
) -> int | Literal["auto"] | None:
    """The value of `--jobs`.

    Args:
        text: as given.
        processes: for each run; None for as many as leave no GPU idle.
        on_cluster: whether pilots on a cluster work, and not this machine.

    Raises:
        UsageError: it is no number of jobs, or `auto` where that is not possible.
    """
    if text is None:
        return None
    if text == "auto":
        if on_cluster:
            raise UsageError(
                "--jobs auto looks at the GPUs of this machine; with --on, give a number"
            )
        if processes != 1:
            raise UsageError(
                "--jobs auto puts several runs on a GPU; leave out --gpus-per-run and "
                "--processes-per-run"
            )
        return "auto"
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if not 1 <= number <= MAX_JOBS:
        raise UsageError(
            f'--jobs: "{text}" is not allowed: must be a number from 1 to {MAX_JOBS}, or auto'
        )
    return number


def _refuse_without_effect(
    on_cluster: bool, detach: bool, has_budget: bool, has_loggers: bool
) -> None:
    """Refuse options that would be without effect.

    Raises:
        UsageError: names the option.
    """
    if detach and not on_cluster:
        raise UsageError("--detach has an effect only with --on")
    if on_cluster and has_budget:
        raise UsageError(
            "--budget is for this machine; the time of a job on a cluster is --time for each of "
            "its pilots, "
            "and --rows and --seeds make it smaller"
        )
    if detach and has_loggers:
        raise UsageError("--log needs this command to go on; leave out --detach")


def _train_within(
    budget: Budget, gpus: int, study: Study, root: Results, train: Callable[[Study], Launch]
) -> Launch:
    """Train the part of the study that fits; on an unknown machine train base first and measure its
    time.

    Raises:
        UsageError: base alone does not fit, or the time of some rows cannot be estimated.
    """
    from ablate.analysis.settle import settle
    from ablate.plan.budget import base_alone, fit, unknown_rows
    from ablate.plan.plan import plan_of

    study = study_to_plan(study, root)
    fitting = fit(plan_of(study, root), budget.available(gpus))
    if fitting is None:
        echo(
            f"--budget {budget.text}: no run has finished on this machine yet; base is trained "
            f"first."
        )
        start = time.monotonic()
        outcome = train(base_alone(study))
        if not outcome.complete:
            return outcome
        # The time for base counts towards the budget.
        rest = replace(budget, seconds=max(0.0, budget.seconds + start - time.monotonic()))
        plan = plan_of(settle(study, root), root)
        fitting = fit(plan, rest.available(gpus))
        if fitting is None:
            rows = ", ".join(unknown_rows(plan))
            raise UsageError(
                f"--budget {budget.text}: cannot estimate rows without a last step, or in another "
                f"precision: {rows}"
            )
    echo(fitting.summary(budget))
    return train(fitting.study)
