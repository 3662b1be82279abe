"""`ablate status`: where every run stands, while it runs or after; and all that is known of one."""

from __future__ import annotations

import json
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.cli.options import (
    DEFAULT_RESULTS,
    Overrides,
    ResultsRoot,
    Rows,
    Seeds,
    any_run,
    study_and_results,
    warn_of_other_text,
)
from ablate.errors import UsageError
from ablate.formatting import duration, plural
from ablate.store import Results, RunFolder, State
from ablate.store.status import damage_of, failure_of, last_lines, read_progress, was_killed

if TYPE_CHECKING:
    from ablate.study import Study


class Format(str, Enum):
    """Forms of the status."""

    rich = "rich"
    json = "json"


StudyOrRun = Annotated[
    Path,
    typer.Argument(metavar="STUDY|RUN", help="The study's YAML file, or a run's id for all that is known of it."),
]
_RUN = re.compile(r"[0-9a-f]{3,12}")
LOG_LINES = 3  # of a run that has failed


def command(
    study: StudyOrRun,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    rows: Rows = None,
    seeds: Seeds = None,
    format: Annotated[Format, typer.Option("--format", help="rich to read, json for scripts.")] = Format.rich,
    watch: Annotated[
        bool, typer.Option("--watch", help="What `ablate run` shows, until every run has ended; Ctrl-C ends it.")
    ] = False,
) -> None:
    """Show every run: pending, running, interrupted, failed, diverged or done. Of a RUN, all that is known."""
    if _RUN.fullmatch(str(study)) and not study.exists():
        if watch:
            raise UsageError("--watch has no effect on one run: give the study")
        _one(str(study), Results(results), format)
        return
    from ablate.report.plan import Plan, plan_of

    content, root = study_and_results(study, results, set, rows, seeds)
    if watch:
        _watch(content, root, format)
        return
    warn_of_other_text(content, root)
    plan: Plan = plan_of(content, root)
    details = [
        (row.row.label, run.seed, run.id, state, _detail(Results(results).run(run.id), state))
        for row in plan.rows
        for run, state in row.runs
    ]
    if format is Format.json:
        keys = ("row", "seed", "id", "state", "detail")
        runs: list[dict[str, Any]] = [dict(zip(keys, detail, strict=True)) for detail in details]
        for run in runs:
            run["log"] = _last_words(Results(results).run(run["id"]), run["state"])
        typer.echo(json.dumps({"study": plan.study.name, "runs": runs, "seconds_left": plan.seconds}, indent=1))
        return
    from ablate.report.plan_text import print_status

    print_status(plan, details)
    for label, seed, id, state, _ in details:
        words = _last_words(Results(results).run(id), state)
        if words:
            typer.echo(f"\n{label} seed {seed}, the last lines of its log:")
            typer.echo("\n".join(f"  {line}" for line in words))


def _one(given: str, results: Results, format: Format) -> None:
    """All that is known of one run.

    Raises:
        UsageError: there is none whose id begins so, or several.
    """
    from ablate.report.run_text import about, as_lines

    known = about(any_run(results, given))
    typer.echo(json.dumps(known, indent=1) if format is Format.json else "\n".join(as_lines(known)))


def _last_words(folder: RunFolder, state: State) -> list[str]:
    """The end of the log of a run that has failed."""
    return last_lines(folder.log, LOG_LINES) if state == "failed" else []


def _watch(study: Study, results: Results, format: Format) -> None:
    if format is not Format.rich:
        raise UsageError(f"--format {format.value} has no effect with --watch")
    from rich.console import Console

    from ablate.cli.live import Live

    with Live(study, results, Console(highlight=False)) as live:
        live.watch()


def _detail(folder: RunFolder, state: State) -> str:
    """What there is to say of a run in this state."""
    if state == "failed":
        how = "the next `ablate run`" if was_killed(folder) else "--retry-failed"
        return f"{failure_of(folder) or ''}; see {folder.log}; {how} runs it again"
    if state in ("done", "diverged"):
        result = folder.read_result() or {}
        text = f"{result.get('steps')} steps in {duration(result.get('seconds'))}"
        return text if state == "done" else f"{text}: {result.get('reason')}"
    damage = damage_of(folder)
    if damage is not None:
        return damage
    if state == "pending" and folder.result.exists():
        return f"trained, {plural((folder.read_result() or {}).get('steps', 0), 'step')}; to be translated"
    progress = read_progress(folder)
    return "" if progress is None else where(progress)


def where(progress: dict[str, Any]) -> str:
    """`step 120 of 450, loss 2.31, PPL 8.1, 7,300 tokens/s`."""
    parts = [f"step {progress['step']} of {progress['steps'] or '?'}"] if progress.get("step") else []
    if progress.get("phase") not in ("training", "left"):
        parts.append(str(progress["phase"]))
    if progress.get("loss") is not None:
        parts.append(f"loss {progress['loss']:.2f}")
    if progress.get("perplexity") is not None:
        parts.append(f"PPL {progress['perplexity']:.2f}")
    if progress.get("tokens_per_second") and progress.get("phase") == "training":
        parts.append(f"{progress['tokens_per_second']:,.0f} tokens/s")
    return ", ".join(parts)
