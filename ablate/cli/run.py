"""`ablate run`: train what is missing, resume what was interrupted, print the table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RESULTS,
    BudgetText,
    Log,
    Offline,
    Overrides,
    ResultsRoot,
    Rows,
    Seeds,
    StudyFile,
    go_offline,
    measured,
    study_and_results,
)
from ablate.errors import EXIT_INTERRUPTED, EXIT_RUN_FAILED, Interrupted, UsageError

if TYPE_CHECKING:
    from ablate.launch import Launch
    from ablate.report.budget import Budget
    from ablate.store import Results
    from ablate.study import Study


class Device(str, Enum):
    """Where to train."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def command(
    study: StudyFile,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    rows: Rows = None,
    seeds: Seeds = None,
    device: Annotated[Device, typer.Option("--device", help="auto takes GPUs where there are any.")] = Device.auto,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=1024, metavar="N", help="Runs at once. Unset: one a GPU, or one a core."),
    ] = None,
    offline: Offline = False,
    budget: BudgetText = None,
    log: Log = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what has failed.")] = False,
) -> None:
    """Train what is missing, resume what was interrupted, and print the table."""
    from rich.console import Console

    from ablate.cli.live import Live
    from ablate.launch import launch
    from ablate.loggers import Mirror, chosen
    from ablate.report import publish, render
    from ablate.report.budget import Budget
    from ablate.report.table import table_of
    from ablate.store.machine import gpus_in_sight

    go_offline(offline)
    loggers = chosen(log or ())
    given = None if budget is None else Budget.parse(budget)
    content, root = study_and_results(study, results, set, rows, seeds)
    console = Console(highlight=False)

    def train(part: Study) -> Launch:
        with Live(part, root, console) as live, Mirror(part, root, loggers, live.say_later):
            return launch(
                part,
                root,
                live,
                device=device.value,
                jobs=jobs,
                retry_failed=retry_failed,
                announce=live.announce,
                say=live.say,
            )

    try:
        if given is None:
            done = train(content)
        else:
            gpus = 0 if device is Device.cpu else gpus_in_sight()
            done = _within(given, min(gpus, jobs or gpus), content, root, train)
    except Interrupted:
        console.print("Interrupted. The same command goes on from here.", soft_wrap=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    measured(content, root)
    table = table_of(content, root)
    render.print_rich(table, console, against_paper=False)
    if content.is_modified:
        console.print(
            f"Not written to {root.study(content.name)}: that is for the study as its file has it.", soft_wrap=True
        )
    else:
        publish.publish(table, root)
    if not done.complete:
        raise typer.Exit(EXIT_RUN_FAILED)


def _within(budget: Budget, gpus: int, study: Study, root: Results, train: Callable[[Study], Launch]) -> Launch:
    """Train what fits into the budget; where nothing is known of this machine, base first, which tells.

    Raises:
        UsageError: base alone does not fit, or no time can be told.
    """
    from ablate.report.budget import base_alone, fit, unknown_rows
    from ablate.report.plan import plan_of

    found = fit(plan_of(study, root), budget.available(gpus))
    if found is None:
        typer.echo(f"--budget {budget.text}: nothing is known of this machine yet; base is trained first, which tells.")
        began = time.monotonic()
        done = train(base_alone(study))
        if not done.complete:
            return done
        rest = replace(budget, seconds=max(0.0, budget.seconds + began - time.monotonic()))
        plan = plan_of(study, root)
        found = fit(plan, rest.available(gpus))
        if found is None:
            rows = ", ".join(unknown_rows(plan))
            raise UsageError(
                f"--budget {budget.text}: cannot tell the time of rows without an end, or in another precision: {rows}"
            )
    typer.echo(found.told(budget))
    return train(found.study)
