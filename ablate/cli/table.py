"""`ablate table`: the results as a table, in several formats."""

from __future__ import annotations

from typing import Annotated, Literal

from ablate.cli.arguments import flag, option
from ablate.cli.formats import Format, Legend, Wide, print_table
from ablate.cli.options import DEFAULT_STUDY, StudyFile, StudyOptions
from ablate.cli.scoring import outcome_to_show
from ablate.errors import ineffective_option

EXAMPLE = "ablate table study.yaml --format latex --against paper"


def command(
    study: StudyFile = DEFAULT_STUDY,
    *,
    options: StudyOptions,
    format: Format = "text",
    against: Annotated[
        Literal["paper"] | None, option("Add the paper's table for the task.")
    ] = None,
    cost: Annotated[
        bool, flag("--cost", "Add training time, tokens per second and FLOPs.")
    ] = False,
    wide: Wide = False,
    legend: Legend = False,
) -> None:
    """Print the results table from finished runs."""
    selected, root = options.open(study)
    if against is not None and format == "json":
        raise ineffective_option(
            "--against", "has no effect with --format json, which always includes it"
        )
    outcome = outcome_to_show(selected, root)
    print_table(outcome.table, format, wide, legend, against_paper=against is not None, cost=cost)
