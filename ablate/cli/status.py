"""`ablate status`: the state of every run of a study, or everything known about one run."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from ablate.analysis.stages import Stage, advance, next_stage
from ablate.cli.arguments import argument, flag, option
from ablate.cli.logs import show_logs
from ablate.cli.naming import SeedOfRow, find_run
from ablate.cli.options import DEFAULT_STUDY, StudyOptions, present_study
from ablate.cli.output import Format
from ablate.cli.scoring import check_changes
from ablate.errors import Fault, StoreError, ineffective_option, nearest_path, wrong_option
from ablate.formatting import duration, plural
from ablate.plan.plan import Plan, plan_of
from ablate.plan.progress import saved_step
from ablate.report.plan_text import RunStatus, print_status
from ablate.report.run_text import as_lines, progress_line, read_summary
from ablate.stdio import echo, new_console, print_json
from ablate.store import Results, State, none_if_unreadable
from ablate.store.jobs import JobFolder, jobs_of
from ablate.store.records import Result
from ablate.store.status import fault_in_result, last_lines
from ablate.study import Run
from ablate.study.choice import AWAITS
from ablate.study.yaml_nodes import is_yaml

EXAMPLE = "ablate status study.yaml --watch"

StudyOrRun = Annotated[
    Path,
    argument(
        "STUDY|RUN",
        "The study's YAML file, or the id of one run.",
        show_default=True,
        callback=present_study,
    ),
]
_RUN_ID = re.compile(r"[0-9a-f]{3,12}")
LOG_LINES = 3  # shown for a failed run
LINES = 20  # of each log, with --logs


def command(
    study: StudyOrRun = DEFAULT_STUDY,
    row: Annotated[str | None, argument("ROW", "Show the run of this row only.")] = None,
    *,
    options: StudyOptions,
    seed: SeedOfRow = None,
    format: Format = "text",
    watch: Annotated[
        bool,
        flag("--watch", "Show live progress until every run has ended; Ctrl-C stops watching."),
    ] = False,
    logs: Annotated[
        bool, flag("--logs", "Show the last lines of the logs of pilots, or of a row's runs.")
    ] = False,
    lines: Annotated[
        int | None, option("With --logs: lines of each log.", "N", min=1, show_default=str(LINES))
    ] = None,
) -> None:
    """Show the state of every run, or everything known about one run."""
    if lines is not None and not logs:
        raise ineffective_option("--lines", "has an effect only with --logs")
    if logs:
        _refuse_with_logs(options, seed, watch)
        show_logs(*options.read(study), row, lines or LINES, format)
        return
    root = Results(options.results)
    remedy = ""  # for an option that has no effect on one run
    if row is not None or (seed is not None and study.exists()):
        remedy = ", which is named by STUDY ROW --seed N"
    # Ids have no suffix. A study file without a suffix is recognized because it exists.
    elif not study.exists() and not study.suffix:
        remedy = "; give the study's file"
        if not _RUN_ID.fullmatch(str(study)):
            raise wrong_option(
                "STUDY",
                Fault(
                    "is neither a study file nor a run id",
                    given=f'"{study}"',
                    remedy=f"`{root.command('status', 'STUDY')}` lists the ids of its runs",
                    meant=nearest_path(study, is_yaml),
                ),
            )
    if remedy:
        of_studies = options.given()
        if watch:
            of_studies.append("--watch")
        if of_studies:
            raise ineffective_option(of_studies[0], f"has no effect on one run{remedy}")
        run = find_run(root, str(study), row, seed)
        summary = read_summary(run.folder)
        if format == "json":
            print_json(summary.as_json())
        else:
            echo("\n".join(as_lines(summary)))
        return
    content, root = options.read(study)
    stage = next_stage(content, root)
    check_changes(stage.planned, root)
    if watch:
        _watch(stage, root, format)
    else:
        _show_runs(stage, root, format)


def _refuse_with_logs(options: StudyOptions, seed: int | None, watch: bool) -> None:
    """Refuse options that would be without effect."""
    given = options.given()
    if seed is not None:
        given.append("--seed")
    if watch:
        given.append("--watch")
    if given:
        raise ineffective_option(given[0], "has no effect with --logs")


def _show_runs(stage: Stage, root: Results, format: Format) -> None:
    """Show every run, the jobs on clusters, and the end of the log of each failed run."""
    plan: Plan = plan_of(stage.selected, root)
    details = []
    runs = []
    for row in plan.all_rows:
        for run, state in row.runs:
            result = None  # read once for all that is said of the run
            if not run.awaits_choice:
                result = none_if_unreadable(root.run(run.id).read_result)
            id, detail = "" if run.awaits_choice else run.id, _detail(root, run, state, result)
            status = RunStatus(row.label, run.seed, id, state, detail)
            details.append(status)
            if format == "json":
                facts = {**status._asdict(), "id": id or None, **_numbers(root, status, result)}
                runs.append(facts | {"log": _log_of_failure(root, id, state)})
    if format == "json":
        content = {"study": plan.study.name, **stage.details, "runs": runs}
        print_json({**content, "jobs": _jobs(root, plan.study.name), "seconds_left": plan.seconds})
        return
    print_status(plan, details)
    if stage.sentence:
        echo(stage.sentence)
    for line in job_lines(root, stage.study.name):
        echo(line)
    for label, seed, id, state, _ in details:
        lines = _log_of_failure(root, id, state)
        if lines:
            echo(f"\n{label} seed {seed}, end of its log:")
            echo("\n".join(f"  {line}" for line in lines))


def _numbers(results: Results, status: RunStatus, result: Result | None) -> dict[str, Any]:
    """The progress, outcome or failure of a run for programs; nothing of a pending one."""
    if not status.id:
        return {}
    folder = results.run(status.id)
    if result is not None:
        return {"steps": result.steps, "seconds": result.seconds, "reason": result.reason}
    numbers: dict[str, Any] = {}
    if progress := none_if_unreadable(folder.read_progress):
        names = ("step", "steps", "loss", "perplexity", "tokens_per_second", "seconds")
        numbers = progress.model_dump(include=set(names))
    if status.state == "interrupted":
        numbers["saved_step"] = saved_step(folder)
    if status.state == "failed" and (failure := none_if_unreadable(folder.read_failure)):
        numbers["reason"] = failure.reason
    return numbers


def _jobs(results: Results, study: str) -> list[dict[str, Any]]:
    """The jobs of a study on clusters, for programs."""
    jobs = []
    for folder in jobs_of(results, study):
        pilots = []
        for report in folder.read_pilots():
            facts = {"name": report.name, "host": report.host, "phase": report.phase}
            pilots.append({**facts, "is_alive": report.is_alive, "ended": report.ended})
        end = none_if_unreadable(folder.read_end)
        jobs.append({"job": folder.id, "closed": end and end.reason, "pilots": pilots})
    return jobs


def _log_of_failure(results: Results, id: str, state: State) -> list[str]:
    """The last log lines of a failed run; empty in other states."""
    if state != "failed":
        return []
    return last_lines(results.run(id).log, LOG_LINES)


def _watch(stage: Stage, results: Results, format: Format) -> None:
    if format != "text":
        raise ineffective_option(f"--format {format}", "has no effect with --watch")
    from ablate.cli.live import LiveView  # loads the launcher, which a state needs not

    console = new_console()
    with LiveView(stage.runs, results, console) as view:
        view.watch()
    while (stage := advance(stage, results)).missing:
        with LiveView(stage.runs, results, console) as view:
            view.watch()


def _detail(results: Results, run: Run, state: State, result: Result | None) -> str:
    """Progress, outcome or failure of a run, as one line."""
    if run.awaits_choice:
        return AWAITS
    folder = results.run(run.id)
    if state == "failed":
        failure = none_if_unreadable(folder.read_failure)
        retried = "the next `ablate run`" if failure and failure.killed else "--retry-failed"
        return f"{failure.reason if failure else ''}; see {folder.log}; {retried} runs it again"
    if state in ("done", "diverged") and result is not None:
        text = f"{plural(result.steps, 'step')} in {duration(result.seconds)}"
        if state == "diverged":
            text += f": {result.reason}"
        return text
    damage = fault_in_result(folder)
    if damage is not None:
        return str(damage)
    if state == "pending" and result is not None:
        return f"trained, {plural(result.steps, 'step')}; still to be decoded"
    parts = []
    if progress := none_if_unreadable(folder.read_progress):
        parts.append(progress_line(progress))
    if state == "interrupted":
        step = saved_step(folder)
        parts.append("nothing is saved" if step is None else f"saved at step {step}")
    return "; ".join(parts)


def job_lines(results: Results, study: str) -> list[str]:
    """The open jobs of a study on clusters, and the last one, each with its pilots."""
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
