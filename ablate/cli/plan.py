"""`ablate plan`: every row with what it changes and what it will cost; trains nothing."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_RESULTS, Overrides, ResultsRoot, Rows, Seeds, StudyFile, study_and_results


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
    format: Annotated[Format, typer.Option("--format", help="rich to read, json for scripts.")] = Format.rich,
) -> None:
    """Show every row with its parameters, FLOPs, memory, disk and time; train nothing."""
    from ablate.data.check import data_faults
    from ablate.report.plan import plan_of

    content, root = study_and_results(study, results, set, rows, seeds)
    plan = plan_of(content, root)
    for fault in data_faults(content.data, content.data_folder, root.corpora):
        typer.echo(f"data: {fault}", err=True)
    if format is Format.json:
        typer.echo(json.dumps(plan.as_json(), indent=1))
        return
    from ablate.report.plan_text import print_plan

    print_plan(plan)
