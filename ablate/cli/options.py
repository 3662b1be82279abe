"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.store import Results
from ablate.study import Selection, Study, read_study

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study's YAML file.", show_default=False)]
ResultsRoot = Annotated[Path, typer.Option("--results", metavar="DIR", help="The results root.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of base, or data.FIELD. May be repeated."),
]
Rows = Annotated[
    list[str] | None,
    typer.Option("--rows", metavar="ROWS", help="Only these rows and base: groups, labels or patterns, by commas."),
]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="SEEDS", help="These seeds in place of the study's: 1,2,3 or 1-3.")
]
DEFAULT_RESULTS = Path("results")


def study_and_results(
    study: Path, results: Path, overrides: list[str] | None, rows: list[str] | None, seeds: str | None
) -> tuple[Study, Results]:
    """The study as selected, and its results root.

    Raises:
        StudyError: the study or --set is at fault.
        UsageError: --rows or --seeds is.
    """
    return read_study(study, Selection(overrides or (), rows or (), seeds)), Results(results)
