"""`ablate run`: train missing runs, resume interrupted ones, print the table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from ablate.analysis.missing import Retries, failed_before
from ablate.analysis.stages import Rule, Stage, execute_stages, next_stage, stages
from ablate.analysis.table import table_of
from ablate.cli.cluster import ClusterOptions, PerRun
from ablate.cli.live import LiveView
from ablate.cli.options import (
    DEFAULT_RESULTS,
    BudgetText,
    Device,
    Offline,
    StudyFile,
    StudyOptions,
    flag,
    go_offline,
    option,
    print_changes,
    print_notes,
)
from ablate.cli.scoring import score_with_progress
from ablate.cluster.submission import close_finished, submit_study
from ablate.errors import EXIT_INTERRUPTED, EXIT_RUN_FAILED, Interrupted, StoreError, UsageError
from ablate.formatting import duration, plural
from ablate.launch import launch, outcome_of_launch, prepare_study
from ablate.launch.devices import gpus_for_run
from ablate.loggers import Mirror, Start, select_loggers
from ablate.plan.budget import Budget, WithinBudget, base_alone
from ablate.plan.plan import plan_of
from ablate.plan.progress import saved_line
from ablate.plan.resources import resource_faults
from ablate.report import publish
from ablate.store import Results, State, if_readable
from ablate.store.jobs import JobFolder, Resources
from ablate.store.machine import visible_gpus
from ablate.streams import echo, new_console
from ablate.study import Study
from ablate.table import render

EXAMPLE = "ablate run study.yaml --budget 8h --log tensorboard"


def command(
    study: StudyFile,
    options: StudyOptions,
    *,
    device: Device = "auto",
    jobs: Annotated[
        int | None,
        option(
            "Jobs at once, which may share GPUs.",
            "N",
            min=1,
            max=1024,
            show_default="one per GPU, or per CPU core",
        ),
    ] = None,
    per_run: PerRun,
    context: typer.Context,
    offline: Offline = False,
    budget: BudgetText = None,
    log: Annotated[
        list[str] | None,
        option(
            "Also log to tensorboard, mlflow or wandb. Repeatable.", "LOGGER", envvar="ABLATE_LOG"
        ),
    ] = None,
    retry_failed: Annotated[bool, flag("--retry-failed", "Run failed runs again.")] = False,
    cluster: ClusterOptions,
    detach: Annotated[bool, flag("--detach", "With --on: return after the submission.")] = False,
) -> None:
    """Train missing runs, resume interrupted ones, and print the table."""
    go_offline(offline)
    # Options are checked before the study, and the study before downloads and training.
    source = context.get_parameter_source("log")
    is_default = detach and source is not None and source.name == "ENVIRONMENT"
    loggers = select_loggers(() if is_default else log or ())
    limit = None if budget is None else Budget.parse(budget)
    profile = cluster.profile()
    processes, used = per_run.resolve(device, visible_gpus() if profile is None else None)
    resources = Resources(device=used, jobs=jobs, processes=processes)
    _refuse_without_effect(profile is not None, detach, limit is not None, bool(loggers))
    if is_default:
        echo("note: ABLATE_LOG has no effect with --detach", err=True)
    content, root = options.open(study, may_be_new=True)
    publish.refuse_other_study(content, root)
    print_notes(content)
    print_changes(content, root)
    began = time.time()
    retries = failed_before(began, retry_failed)
    part = content if limit is None else base_alone(content)
    plan = plan_of(part, root, resources.device, resources.processes or 1)
    pilots = None if profile is None else profile.workers
    runs = next_stage(part, root, retries).known_runs
    faults = resource_faults(plan, runs, root, resources.jobs, pilots)
    if faults:
        raise StoreError(*faults)
    console = new_console()
    if content.custom_classes:
        classes = [f"{c.module}:{c.name} ({c.digest})" for c in content.custom_classes]
        echo(f"Executing the custom classes of the study: {', '.join(classes)}")
    view = View(root, console, loggers)
    try:
        if profile is not None:
            assert cluster.on is not None
            publish.claim(content, root)  # the closing job publishes
            selection, log_line = options.selection, view.log
            job = submit_study(
                content, root, selection, cluster.on, profile, resources, retry_failed, log_line
            )
            if detach:
                raise typer.Exit
            end = _follow(content, view, job)
        else:
            rule = None
            if limit is not None:
                rule = WithinBudget(limit, _gpus(resources, content), echo)
            end = _train(content, view, resources, retries, rule)
    except Interrupted:
        console.print(
            _interrupted_line(content, root, on_cluster=profile is not None), soft_wrap=True
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _publish(end.settled, root, console)
    close_finished(root, content.name)
    states = outcome_of_launch(end.study, root)
    if runs:
        line = _last_line(content, root, states, time.time() - began)
        console.print(line, soft_wrap=not console.is_terminal)
    if failed := states["failed"]:
        remedy = "`ablate status` says why, and --retry-failed runs again what has failed."
        console.print(f"{plural(failed, 'run')} failed: {remedy}", soft_wrap=True)
    if end.obstacle:
        console.print(end.obstacle, soft_wrap=True)
    if end.obstacle or states["done"] < states.total():
        raise typer.Exit(EXIT_RUN_FAILED)


@dataclass(frozen=True)
class View:
    """Shows the stages of a study, and copies its metrics to loggers meanwhile."""

    root: Results
    console: Console
    loggers: Mapping[str, Start]

    @contextmanager
    def of(self, part: Study) -> Iterator[LiveView]:
        """Live progress of a part of the study."""
        with (
            LiveView(part, self.root, self.console) as view,
            Mirror(part, self.root, self.loggers, view.log),
        ):
            yield view

    def copy(self, part: Study) -> None:
        """Copy the metrics of finished runs to loggers, which may be new."""
        with Mirror(part, self.root, self.loggers, self.log):
            pass

    def log(self, line: str) -> None:
        """Print a line outside of a stage."""
        self.console.print(line, soft_wrap=True)


def _train(
    study: Study, view: View, resources: Resources, retries: Retries, limit: Rule | None
) -> Stage:
    """Execute the stages of a study on this machine, and return where it is then."""
    executed: list[Stage] = []

    def execute(stage: Stage) -> None:
        executed.append(stage)
        with view.of(stage.part) as live:
            launch(stage, view.root, live, resources, retries)

    execute_stages(study, view.root, execute, view.log, retries, limit)
    end = next_stage(study, view.root, limit=limit)
    if not executed:  # data that have changed since are found out even if nothing is missing
        prepare_study(end.study, view.root, view.log)
        view.copy(end.study)
    return end


def _gpus(resources: Resources, study: Study) -> int:
    """Number of GPUs of this machine that runs occupy at the same time."""
    if resources.device == "cpu":
        return 0
    gpus = visible_gpus()
    if resources.jobs is not None:  # which may leave some GPUs unused
        of_run = gpus_for_run(resources.processes, gpus, study.total_runs)
        gpus = min(gpus, resources.jobs * of_run)
    return gpus


def _follow(study: Study, view: View, job: JobFolder | None) -> Stage:
    """Show the stages of a study on a cluster until its job is closed, and return where it is."""
    if job is not None:
        for stage in stages(study, view.root):
            if job.is_closed:
                break
            with view.of(stage.part) as live:
                live.watch(lambda: job.is_closed, partial(_is_retried, job, stage.part))
    return next_stage(study, view.root)


def _is_retried(job: JobFolder, part: Study) -> bool:
    """Whether a pilot of a job may try a failed run once more, on another host."""
    if not any(report.is_alive for report in job.read_pilots()):
        return False
    failures = (if_readable(job.results.run(run.id).read_failure) for run in part.runs())
    return any(failure.may_succeed_elsewhere for failure in failures if failure is not None)


def _publish(study: Study, root: Results, console: Console) -> None:
    """Print the table of a study, and write it if it is that of the whole study."""
    table = table_of(study, root, score_with_progress(study, root))
    render.print_rich(table, console, against_paper=False)
    if study.is_modified:  # the published table belongs to the whole study
        console.print(
            f"{root.study(study.name)} is not updated: --set, --rows and --seeds change the study.",
            soft_wrap=True,
        )
        return
    publish.claim(study, root)
    publish.publish_results(study, table, root)


def _last_line(study: Study, root: Results, states: Counter[State], seconds: float) -> str:
    """What the command has done, where its results are, and what may be next."""
    ended = f"{states['done']} of {plural(states.total(), 'run')} done in {duration(seconds)}"
    folder = root.root if study.is_modified else root.study(study.name)
    elsewhere = "" if root.root == DEFAULT_RESULTS else f" --results {root.root}"
    page = f"`ablate report {study.path}{elsewhere}` writes a page with figures"
    return f"{study.name}: {ended}; results are in {folder}; {page}"


def _interrupted_line(study: Study, root: Results, on_cluster: bool) -> str:
    """The last line of an interrupted command: what is saved, and how to go on."""
    if on_cluster:
        return f"The job goes on without this command; `ablate stop {study.path}` ends it."
    saved = saved_line(next_stage(study, root).part, root)
    return f"Interrupted: {saved}. The same command resumes."


def _refuse_without_effect(
    on_cluster: bool, detach: bool, has_budget: bool, has_loggers: bool
) -> None:
    """Refuse options that would be without effect."""
    if detach and not on_cluster:
        raise UsageError("--detach has an effect only with --on")
    if on_cluster and has_budget:
        raise UsageError(
            "--budget is for this machine; the time of a job on a cluster is --time for each of "
            "its pilots, and --rows and --seeds make it smaller"
        )
    if detach and has_loggers:
        raise UsageError("--log needs this command to go on; leave out --detach")
