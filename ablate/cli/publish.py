"""`ablate publish`: the results of a study as one folder of small files, for a repository or a
supplement.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RESULTS,
    ResultsRoot,
    StudyFile,
    StudyOptions,
    print_faults,
    score_with_progress,
    warn_of_changed_data,
)
from ablate.errors import UsageError
from ablate.streams import echo

EXAMPLE = "ablate publish study.yaml --to supplement/study"


def command(
    study: StudyFile,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="DIR", file_okay=False, help="Folder for the files.", show_default=False
        ),
    ],
    results: ResultsRoot = DEFAULT_RESULTS,
) -> None:
    """Write tables, figures and records, from which others recompute the results."""
    from ablate.analysis.curves import curves_of
    from ablate.analysis.table import table_of
    from ablate.page.figures import figure_files
    from ablate.report.archive import ARCHIVE, archive_of
    from ablate.report.publish import publish

    content, root = StudyOptions(results).open(study)
    warn_of_changed_data(content, root)
    faults = score_with_progress(content, root)
    table = table_of(content, root, faults)
    if not any(run.result for row in table.rows for run in row.runs):
        raise UsageError(f"{study}: no run has a result in {results}; train them with `ablate run`")
    print_faults(table)
    more = figure_files(table, curves_of(table, root), kinds=("svg",))
    more[ARCHIVE] = archive_of(content, root)
    for name in publish(table, root, to, more):
        echo(f"Wrote {to / name}")
