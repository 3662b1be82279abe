"""`ablate table`: the results as a table, in several formats."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ablate.cli.formats import Format, TableFormat, Wide, print_table, refuse_wide
from ablate.cli.options import (
    StudyFile,
    StudyOptions,
    score_with_progress,
    warn_of_changed_data,
)
from ablate.errors import UsageError

EXAMPLE = "ablate table study.yaml --format latex --against paper"


class Against(StrEnum):
    """Published results to compare with."""

    paper = "paper"


def command(
    study: StudyFile,
    options: StudyOptions,
    *,
    format: TableFormat = Format.rich,
    against: Annotated[
        Against | None, typer.Option("--against", help="Add the paper's table for the task.")
    ] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Add training time, tokens per second and FLOPs.")
    ] = False,
    wide: Wide = False,
) -> None:
    """Print the results table from finished runs."""
    from ablate.analysis.table import table_of

    selected, root = options.open(study)
    if against is not None and format in (Format.csv, Format.json):
        raise UsageError(
            f"--against has no effect with --format {format.value}, which always includes it"
        )
    refuse_wide(wide, format)
    warn_of_changed_data(selected, root)
    faults = score_with_progress(selected, root)
    content = table_of(selected, root, faults)
    print_table(content, format, wide, against_paper=against is not None, cost=cost)
