"""`ablate compare`: two rows side by side."""

from __future__ import annotations

from typing import Annotated

from ablate.cli.arguments import argument, option
from ablate.cli.options import (
    DEFAULT_RESULTS,
    Overrides,
    ResultsRoot,
    Seeds,
    StudyFile,
    StudyOptions,
)
from ablate.cli.output import Format, print_faults
from ablate.cli.scoring import outcome_to_show
from ablate.errors import Damaged, Fault, UsageError
from ablate.report.compare import add_items, compare_rows
from ablate.report.compare_text import print_comparison
from ablate.stdio import echo, print_json
from ablate.study.select import find_row

EXAMPLE = "ablate compare study.yaml base 'D dropout=0.3'"

RowName = Annotated[str, argument("ROW", "A row's label, or a pattern for one.")]


def command(
    study: StudyFile,
    first: RowName,
    second: RowName,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    seeds: Seeds = None,
    sentences: Annotated[int, option("Example sentences per direction.", "N", min=0, max=1000)] = 3,
    format: Format = "text",
) -> None:
    """Compare two rows: settings, scores, curves, sentences."""
    planned, root = StudyOptions(results, set, None, seeds).open(study)
    before, after = find_row(planned, first), find_row(planned, second)
    if before is after:
        problem = f'"{first}" and "{second}" are the same row, {before.label}'
        raise UsageError(Fault(problem, remedy="give two rows"))
    outcome = outcome_to_show(planned, root, before, after)
    print_faults(outcome.table)
    comparison = compare_rows(outcome, before, after, root)
    try:
        comparison = add_items(comparison, root, sentences)
    except Damaged as error:
        echo(f"{error}; `ablate run` prepares the corpus again", err=True)
    if format == "json":
        print_json(comparison.as_json())
    else:
        print_comparison(comparison)
