"""`ablate table`: the results as a table, in several formats."""

from __future__ import annotations

from typing import Annotated, Literal

from ablate.cli.arguments import flag, option
from ablate.cli.formats import Format, Wide, print_table, refuse_wide
from ablate.cli.options import StudyFile, StudyOptions
from ablate.cli.scoring import scored_outcome
from ablate.errors import UsageError

EXAMPLE = "ablate table study.yaml --format latex --against paper"


def command(
    study: StudyFile,
    options: StudyOptions,
    *,
    format: Format = "rich",
    against: Annotated[
        Literal["paper"] | None, option("Add the paper's table for the task.")
    ] = None,
    cost: Annotated[
        bool, flag("--cost", "Add training time, tokens per second and FLOPs.")
    ] = False,
    wide: Wide = False,
) -> None:
    """Print the results table from finished runs."""
    selected, root = options.open(study)
    if against is not None and format in ("csv", "json"):
        raise UsageError(
            f"--against has no effect with --format {format}, which always includes it"
        )
    refuse_wide(wide, format)
    outcome = scored_outcome(selected, root)
    print_table(outcome.table, format, wide, against_paper=against is not None, cost=cost)
