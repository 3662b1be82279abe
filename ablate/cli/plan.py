"""`ablate plan`: every row with what it changes and what it will cost; trains nothing."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RESULTS,
    BudgetText,
    Overrides,
    ResultsRoot,
    Rows,
    Seeds,
    StudyFile,
    study_and_results,
    warn_of_other_text,
)


class Format(str, Enum):
    """Forms of the plan."""

    rich = "rich"
    json = "json"


def command(
    study: StudyFile,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    rows: Rows = None,
    seeds: Seeds = None,
    budget: BudgetText = None,
    format: Annotated[Format, typer.Option("--format", help="rich to read, json for scripts.")] = Format.rich,
) -> None:
    """Show every row with its parameters, FLOPs, memory, disk and time; train nothing."""
    from ablate.data.check import data_faults
    from ablate.report.budget import Budget, fit
    from ablate.report.plan import plan_of
    from ablate.store.machine import gpus_in_sight

    given = None if budget is None else Budget.parse(budget)
    read, root = study_and_results(study, results, set, rows, seeds)
    warn_of_other_text(read, root)
    plan = plan_of(read, root)
    found = None if given is None else fit(plan, given.available(gpus_in_sight()))
    for fault in data_faults(read.data, read.data_folder, root.corpora):
        typer.echo(f"data: {fault}", err=True)
    if format is Format.json:
        content = plan.as_json()
        if given is not None:
            content["budget"] = {"seconds": given.seconds, "fits": None if found is None else found.as_json()}
        typer.echo(json.dumps(content, indent=1))
        return
    from ablate.report.plan_text import print_plan

    print_plan(plan)
    if found is not None and given is not None:
        typer.echo(found.told(given))
    elif given is not None:
        typer.echo(
            f"--budget {given.text}: what fits is not known until a run has finished here; `run` begins with base."
        )
