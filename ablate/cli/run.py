"""`ablate run`: train missing runs, resume interrupted ones, print the table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ablate.analysis.missing import Retries, failed_before, forget_failures, on_some_host
from ablate.analysis.stages import Stage, advance, execute_stages, first_stage, next_stage
from ablate.analysis.tuning_runs import with_tuning_runs
from ablate.cli.arguments import flag, option
from ablate.cli.cluster_options import PANEL, ClusterOptions, PerRun
from ablate.cli.events import Events, print_event
from ablate.cli.options import (
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
from ablate.cli.scoring import scored_outcome
from ablate.cli.stage_view import StageView
from ablate.cluster.engine import Engine
from ablate.cluster.submission import close_finished, submit_study
from ablate.errors import (
    EXIT_INTERRUPTED,
    EXIT_RUN_FAILED,
    Interrupted,
    MachineError,
    UsageError,
    ineffective_option,
    listed,
)
from ablate.formatting import duration, plural
from ablate.launch.control import Deadline
from ablate.launch.devices import gpus_for_run, usable_gpus
from ablate.launch.launch import launch, outcome_of_launch
from ablate.launch.preparation import prepare_runs
from ablate.loggers import LOGGERS, Start, select_loggers
from ablate.plan.budget import Budget, BudgetLimit
from ablate.plan.resources import shortages
from ablate.publication.folder import publish_results
from ablate.publication.name import claim, refuse_other_study
from ablate.report.live_table import saved_line
from ablate.stdio import echo, new_console, print_line
from ablate.store import Results, State, none_if_unreadable
from ablate.store.jobs import JobFolder
from ablate.store.machine import Resources, visible_gpus
from ablate.study import Runs, Selection, read_study
from ablate.table import render
from ablate.table.table import Table

EXAMPLE = "ablate run study.yaml --budget 8h --log tensorboard"


def command(
    file: StudyFile = DEFAULT_STUDY,
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
        option(f"Also log to {listed(LOGGERS)}. Repeatable.", "LOGGER", envvar="ABLATE_LOG"),
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
    loggers = _loggers(log or (), detach, context)
    parsed_budget = None if budget is None else Budget.parse(budget)
    profile = cluster.profile()
    resources = per_run.resources(device, visible_gpus() if profile is None else None, jobs)
    _refuse_ineffective_options(profile is not None, detach, budget is not None, bool(loggers))
    began = time.time()
    retries = failed_before(began, retry_failed)
    if device == "cuda" and profile is None:
        _check_gpu(file, options, retries)
    study, results = options.read(file, may_be_new=True)
    refuse_other_study(study, results)
    print_notes(study)
    progress = progress_console(quiet)
    log_progress = partial(print_line, progress)
    if profile is not None and not retry_failed:
        retries = on_some_host  # pilots repeat a failed run on another host
    limit = None
    if parsed_budget is not None:
        limit = BudgetLimit(parsed_budget, _gpus(resources, study.whole.runs), log_progress)
    first = first_stage(study, results, log_progress, retries, limit)
    print_changes(first.planned, results)
    pilots = None
    if profile is not None:
        pilots = profile.workers
        if first.missing:  # else the cluster is not needed
            profile.check(first.all_runs, resources)
    if lines := shortages(first, results, resources, pilots):
        raise MachineError(*lines)
    if study.custom_classes:
        classes = [f"{c.written} ({c.digest})" for c in study.custom_classes]
        log_progress(f"Executing the custom classes of the study: {', '.join(classes)}")
    events = Events() if format == "json" else None
    if events is not None:
        loggers = {**loggers, "events": events.start}
    view = StageView(first, results, progress, loggers, events)
    try:
        if profile is None:
            end = _train(first, view, resources, retries, limit)
        else:
            if retry_failed:
                forget_failures(first.all_runs, results)
            job = _submit(first, view, options.selection, str(cluster.on), profile, resources)
            if detach:
                if events is not None and job is not None:
                    print_event("submitted", job=job.id)
                raise typer.Exit
            end = _follow(first, view, job)
    except Interrupted:
        _say(_interruption_line(view, profile is not None))
        if events is not None:
            print_event("end", exit_code=EXIT_INTERRUPTED)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    table = _publish(end.planned, results, events)
    close_finished(results, study.name)
    states = outcome_of_launch(end.selected, results)
    if first.missing:
        _say(_last_line(end, results, states, time.time() - began))
    code = _exit_code(end, states, limit)
    if events is not None:
        events.end(end, results, table, states, code)
    raise typer.Exit(code)


def _check_gpu(file: Path, options: StudyOptions, retries: Retries) -> None:
    """Refuse --device cuda without a GPU before any note on the study. The table of a study without
    missing runs needs none.
    """
    try:
        usable_gpus("cuda")
    except MachineError:
        study = read_study(file, options.selection)
        if next_stage(study, Results(options.results), retries).missing:
            raise


def _say(line: str) -> None:
    """Print a line on standard error, also with --quiet."""
    print_line(new_console(err=True), line)


def _loggers(names: Sequence[str], detach: bool, context: typer.Context) -> Mapping[str, Start]:
    """The loggers of these names; none with --detach, if ABLATE_LOG names them."""
    source = context.get_parameter_source("log")
    if detach and source is not None and source.name == "ENVIRONMENT":
        echo("note: ABLATE_LOG has no effect with --detach", err=True)
        return {}
    return select_loggers(names)


def _interruption_line(view: StageView, on_cluster: bool) -> str:
    """What has been saved, and which command resumes or ends the runs."""
    if on_cluster:
        command = view.results.command("cluster", "stop", view.stage.study.path)
        return f"The job goes on without this command; `{command}` ends it."
    saved = saved_line(view.stage.runs, view.results)
    return f"Interrupted: {saved}. The same command resumes."


def _exit_code(end: Stage, states: Counter[State], limit: BudgetLimit | None) -> int:
    """Print what is missing at the end, and return the exit code. Runs that did not begin because a
    budget was over are not missing, and a run that diverged is a result.
    """
    unfinished = states.total() - states["done"] - states["diverged"]
    if limit is not None and limit.is_over and end.skipped:
        unfinished -= states["pending"]
        did_not = f"{plural(states['pending'], 'run')} did not begin"
        _say(f"--budget {limit.budget.text}: the time is over, and {did_not}.")
    if failed := states["failed"]:
        remedy = "`ablate status` says why, and --retry-failed tries again."
        _say(f"{plural(failed, 'run')} failed: {remedy}")
    if end.obstacle:
        _say(end.obstacle)
    return EXIT_RUN_FAILED if end.obstacle or unfinished else 0


def _train(
    first: Stage,
    view: StageView,
    resources: Resources,
    retries: Retries,
    limit: BudgetLimit | None,
) -> Stage:
    """Execute a stage and the stages after it on this machine, and return the last one."""
    control = None if limit is None else Deadline(limit.has_time)

    def execute(stage: Stage) -> None:
        with view.show(stage) as live:
            launch(stage, view.results, live, resources, retries, control=control)

    end = execute_stages(first, view.results, execute, view.log, retries, limit)
    if not first.missing:  # nothing was launched, so check here whether the data have changed
        prepare_runs(end.study, end.runs_to_prepare, view.results, view.log)
        view.copy_metrics(end)
    return end


def _gpus(resources: Resources, runs: int) -> int:
    """Number of GPUs of this machine that the runs of a study occupy at the same time."""
    if resources.device == "cpu":
        return 0
    gpus = visible_gpus()
    if resources.jobs is not None:  # which may leave some GPUs unused
        gpus = min(gpus, resources.jobs * gpus_for_run(resources.processes, gpus, runs))
    return gpus


def _submit(
    first: Stage,
    view: StageView,
    selection: Selection,
    name: str,
    profile: Engine,
    resources: Resources,
) -> JobFolder | None:
    """Prepare the data of a stage here, and submit it to a cluster; None if no run is missing."""
    study, results = first.study, view.results
    claim(study, results)  # the last job of the submission publishes under the study's name
    close_finished(results, study.name)
    runs = first.selected.by_id | {run.id: run for run in first.runs_to_prepare}
    prepare_runs(study, runs.values(), results, view.log)
    if not first.missing:
        view.log("nothing to submit: every run has ended")
        return None
    return submit_study(first, results, selection, name, profile, resources, view.log)


def _follow(stage: Stage, view: StageView, job: JobFolder | None) -> Stage:
    """Show a stage and the stages after it on a cluster, until the job is closed, and return the
    last one.
    """
    while job is not None and stage.missing and not job.is_closed:
        with view.show(stage) as live:
            live.watch(lambda: job.is_closed, partial(_is_retried, job, stage.runs))
        stage = advance(stage, view.results)
    return stage


def _is_retried(job: JobFolder, runs: Runs) -> bool:
    """Whether a pilot of a job may try a failed run once more, on another host."""
    if not any(report.is_alive for report in job.read_pilots()):
        return False
    failures = (none_if_unreadable(job.results.run(run.id).read_failure) for run in runs)
    return any(failure.should_try_elsewhere for failure in failures if failure is not None)


def _publish(planned: Runs, results: Results, events: Events | None) -> Table:
    """Print the table of a study, unless events are printed, and publish it if it is the table of
    the whole study.
    """
    study = planned.study
    outcome = scored_outcome(planned, results)
    if events is None:
        render.print_rich(outcome.table, new_console(), against_paper=False)
    if study.source.is_modified:  # the published table belongs to the whole study
        folder = results.study(study.name)
        _say(f"This table is of a selection; {folder} keeps the table of the whole study.")
        return outcome.table
    claim(study, results)
    publish_results(planned, outcome, results)
    return outcome.table


def _last_line(end: Stage, results: Results, states: Counter[State], seconds: float) -> str:
    """What the command has done, where the results are, and which command shows more."""
    study = end.study
    ended = f"{states['done']} of {plural(states.total(), 'run')} done"
    tuning = len(with_tuning_runs(end.selected)) - len(end.selected.by_id)
    if tuning:
        ended += f" after {plural(tuning, 'tuning run')},"
    ended += f" in {duration(seconds)}"
    folder = results.root if study.source.is_modified else results.study(study.name)
    command = results.command("report", study.path)
    report = f"`{command}`"
    if study.source.is_modified:
        report = f"`{command} --out FILE` with the same --set, --rows and --seeds"
    page = f"{report} writes a page with figures"
    return f"{study.name}: {ended}; results are in {folder}; {page}"


def _refuse_ineffective_options(
    on_cluster: bool, detach: bool, has_budget: bool, has_loggers: bool
) -> None:
    """Refuse options that would have no effect."""
    if detach and not on_cluster:
        raise ineffective_option("--detach", "has an effect only with --on")
    if on_cluster and has_budget:
        raise UsageError(
            "--budget is for this machine; on a cluster, --time is the time limit of each pilot, "
            "and --rows and --seeds select a smaller part of the study"
        )
    if detach and has_loggers:
        problem = "has an effect only while this command runs"
        raise ineffective_option("--log", problem, "leave out --detach")
