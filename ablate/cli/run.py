"""`ablate run`: train missing runs, resume interrupted ones, print the table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer
from rich.console import Console

from ablate.analysis.missing import Retries, failed_before, forget_failures, on_some_host
from ablate.analysis.outcome import outcome_of
from ablate.analysis.settle import settle
from ablate.analysis.stages import Stage, advance, execute_stages, first_stage
from ablate.analysis.trials import with_trials
from ablate.cli.arguments import flag, option
from ablate.cli.cluster_options import PANEL, ClusterOptions, PerRun
from ablate.cli.events import Events, print_event
from ablate.cli.live import LiveView
from ablate.cli.options import (
    DEFAULT_RESULTS,
    DEFAULT_STUDY,
    BudgetText,
    Device,
    Offline,
    StudyFile,
    StudyOptions,
    go_offline,
    print_changes,
    print_notes,
)
from ablate.cli.output import Format, Quiet, progress_console
from ablate.cli.scoring import score_with_progress
from ablate.cluster.engine import Engine
from ablate.cluster.submission import close_finished, submit_study
from ablate.errors import EXIT_INTERRUPTED, EXIT_RUN_FAILED, Interrupted, MachineError, UsageError
from ablate.formatting import duration, plural
from ablate.launch.devices import gpus_for_run
from ablate.launch.launch import launch, outcome_of_launch
from ablate.launch.preparation import prepare_runs
from ablate.launch.scheduler import Deadline
from ablate.loggers import Mirror, Start, select_loggers
from ablate.plan.budget import Budget, WithinBudget
from ablate.plan.plan import plan_of
from ablate.plan.progress import saved_line
from ablate.plan.resources import resource_faults
from ablate.publication.folder import publish_results
from ablate.publication.name import claim, refuse_other_study
from ablate.store import Results, State, none_if_unreadable
from ablate.store.jobs import JobFolder, Resources
from ablate.store.machine import visible_gpus
from ablate.streams import echo, new_console, print_line
from ablate.study import Runs, Study
from ablate.table import render
from ablate.table.table import Table

EXAMPLE = "ablate run study.yaml --budget 8h --log tensorboard"


def command(
    study: StudyFile = DEFAULT_STUDY,
    *,
    options: StudyOptions,
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
    format: Format = "text",
    quiet: Quiet = False,
    log: Annotated[
        list[str] | None,
        option(
            "Also log to tensorboard, mlflow or wandb. Repeatable.", "LOGGER", envvar="ABLATE_LOG"
        ),
    ] = None,
    retry_failed: Annotated[bool, flag("--retry-failed", "Run failed runs again.")] = False,
    cluster: ClusterOptions,
    detach: Annotated[
        bool,
        flag("--detach", "With --on: return after the submission.", rich_help_panel=PANEL),
    ] = False,
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
    content, root = options.read(study, may_be_new=True)
    refuse_other_study(content, root)
    print_notes(content)
    began = time.time()
    console, progress = new_console(err=format == "json"), progress_console(format, quiet)
    say = partial(print_line, progress)
    retries, rule = failed_before(began, retry_failed), None
    if profile is not None:
        retries = on_some_host
        if retry_failed:
            forget_failures(with_trials(settle(content, root)), root)
    if limit is not None:
        rule = WithinBudget(limit, _gpus(resources, content), say)
    stage = first_stage(content, root, say, retries, rule)
    print_changes(stage.planned, root)
    _refuse_too_small(stage, root, resources, profile)
    if content.custom_classes:
        classes = [f"{c.module}:{c.name} ({c.digest})" for c in content.custom_classes]
        say(f"Executing the custom classes of the study: {', '.join(classes)}")
    events = Events() if format == "json" else None
    if events is not None:
        loggers = {**loggers, "events": events.start}
    view = View(stage, root, progress, loggers, events)
    try:
        if profile is not None:
            assert cluster.on is not None
            claim(content, root)  # the closing job publishes
            close_finished(root, content.name)
            job = submit_study(stage, root, options.selection, cluster.on, profile, resources, say)
            if detach:
                if events is not None and job is not None:
                    print_event("submitted", job=job.id)
                raise typer.Exit
            end = _follow(stage, view, job)
        else:
            end = _train(stage, view, resources, retries, rule)
    except Interrupted:
        line = (
            f"The job goes on without this command; `ablate cluster stop {content.path}` ends it."
        )
        if profile is None:
            line = f"Interrupted: {saved_line(view.stage.runs, root)}. The same command resumes."
        print_line(console, line)
        if events is not None:
            print_event("end", exit_code=EXIT_INTERRUPTED)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    say = partial(print_line, console)
    table = _publish(end.planned, root, console, events)
    close_finished(root, content.name)
    states = outcome_of_launch(end.rows, root)
    if stage.missing:
        say(_last_line(content, root, states, time.time() - began))
    is_out_of_time = rule is not None and rule.is_over and bool(end.left)
    if is_out_of_time:
        did_not = f"{plural(states['pending'], 'run')} did not begin"
        say(f"--budget {budget}: the time is over, and {did_not}.")
    code = _exit_code(end, states, is_out_of_time, say)
    if events is not None:
        events.end(end, root, table, states, code)
    raise typer.Exit(code)


def _exit_code(
    end: Stage, states: Counter[State], is_out_of_time: bool, say: Callable[[str], None]
) -> int:
    """Say what is missing at the end; the exit code. Runs for which a budget has no time left are
    not missing, and a run that diverged is a result.
    """
    unfinished = states.total() - states["done"] - states["diverged"]
    if is_out_of_time:
        unfinished -= states["pending"]
    if failed := states["failed"]:
        remedy = "`ablate status` says why, and --retry-failed runs again what has failed."
        say(f"{plural(failed, 'run')} failed: {remedy}")
    if end.obstacle:
        say(end.obstacle)
    return EXIT_RUN_FAILED if end.obstacle or unfinished else 0


def _refuse_too_small(
    stage: Stage, root: Results, resources: Resources, profile: Engine | None
) -> None:
    """Refuse a machine without the memory and the disk that the missing runs need.

    Raises:
        MachineError: names what is needed, and what is there.
    """
    plan = plan_of(stage.rows, root, resources.device, resources.processes or 1)
    pilots = None if profile is None else profile.workers
    faults = resource_faults(plan, stage.known_runs, root, resources.jobs, pilots)
    if faults:
        raise MachineError(*faults)


@dataclass
class View:
    """Shows the stages of a study, and copies its metrics to loggers meanwhile.

    stage: that is shown, or was shown last.
    events: printed for programs; None for people.
    """

    stage: Stage
    root: Results
    console: Console
    loggers: Mapping[str, Start]
    events: Events | None = None

    @contextmanager
    def of(self, stage: Stage) -> Iterator[LiveView]:
        """Live progress of a stage."""
        self.stage = stage
        if self.events is not None:
            self.events.stage(stage, self.root)
        with (
            LiveView(stage.runs, self.root, self.console) as view,
            Mirror(stage.study.name, stage.runs, self.root, self.loggers, view.log),
        ):
            yield view

    def copy(self, stage: Stage) -> None:
        """Copy the metrics of finished runs to loggers, which may be new."""
        if self.events is not None:
            self.events.stage(stage, self.root)
        with Mirror(stage.study.name, stage.runs, self.root, self.loggers, self.log):
            pass

    def log(self, line: str) -> None:
        """Print a line outside of a stage."""
        print_line(self.console, line)


def _train(
    stage: Stage, view: View, resources: Resources, retries: Retries, limit: WithinBudget | None
) -> Stage:
    """Execute a stage and those that follow it on this machine; where the study is then."""
    control = None if limit is None else Deadline(limit.has_time)

    def execute(stage: Stage) -> None:
        with view.of(stage) as live:
            launch(stage, view.root, live, resources, retries, control=control)

    end = execute_stages(stage, view.root, execute, view.log, retries, limit)
    if not stage.missing:  # data that have changed since are found out even if nothing is missing
        prepare_runs(end.study, end.rows, view.root, view.log)
        view.copy(end)
    return end


def _gpus(resources: Resources, study: Study) -> int:
    """Number of GPUs of this machine that runs occupy at the same time."""
    if resources.device == "cpu":
        return 0
    gpus = visible_gpus()
    if resources.jobs is not None:  # which may leave some GPUs unused
        of_run = gpus_for_run(resources.processes, gpus, study.whole.runs)
        gpus = min(gpus, resources.jobs * of_run)
    return gpus


def _follow(stage: Stage, view: View, job: JobFolder | None) -> Stage:
    """Show a stage and those that follow it on a cluster until the job is closed; where the study
    is then.
    """
    while job is not None and stage.missing and not job.is_closed:
        with view.of(stage) as live:
            live.watch(lambda: job.is_closed, partial(_is_retried, job, stage.runs))
        stage = advance(stage, view.root)
    return stage


def _is_retried(job: JobFolder, runs: Runs) -> bool:
    """Whether a pilot of a job may try a failed run once more, on another host."""
    if not any(report.is_alive for report in job.read_pilots()):
        return False
    failures = (none_if_unreadable(job.results.run(run.id).read_failure) for run in runs)
    return any(failure.may_succeed_elsewhere for failure in failures if failure is not None)


def _publish(planned: Runs, root: Results, console: Console, events: Events | None) -> Table:
    """Print the table of a study for people, and write it if it is that of the whole study."""
    study = planned.study
    outcome = outcome_of(planned, root, score_with_progress(planned, root))
    if events is None:
        render.print_rich(outcome.table, console, against_paper=False)
    if study.source.is_modified:  # the published table belongs to the whole study
        line = "is not updated: --set, --rows and --seeds change the study."
        print_line(console, f"{root.study(study.name)} {line}")
        return outcome.table
    claim(study, root)
    publish_results(planned, outcome, root)
    return outcome.table


def _last_line(study: Study, root: Results, states: Counter[State], seconds: float) -> str:
    """What the command has done, where its results are, and what may be next."""
    ended = f"{states['done']} of {plural(states.total(), 'run')} done in {duration(seconds)}"
    folder = root.root if study.source.is_modified else root.study(study.name)
    elsewhere = "" if root.root == DEFAULT_RESULTS else f" --results {root.root}"
    report = f"`ablate report {study.path}{elsewhere}`"
    if study.source.is_modified:
        report += " with the same --set, --rows and --seeds, and --out FILE,"
    page = f"{report} writes a page with figures"
    return f"{study.name}: {ended}; results are in {folder}; {page}"


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
