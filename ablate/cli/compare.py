"""`ablate compare`: two rows side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RESULTS,
    Format,
    OutputFormat,
    Overrides,
    ResultsRoot,
    Seeds,
    StudyFile,
    StudyOptions,
    print_faults,
    score_missing,
    warn_of_changed_data,
)
from ablate.errors import Damaged, UsageError
from ablate.store import Results
from ablate.streams import echo, print_json

if TYPE_CHECKING:
    from ablate.report.compare import Comparison

EXAMPLE = "ablate compare study.yaml base 'D dropout=0.3'"

RowName = Annotated[
    str,
    typer.Argument(metavar="ROW", help="A row's label, or a pattern for one.", show_default=False),
]


def command(
    study: StudyFile,
    first: RowName,
    second: RowName,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    seeds: Seeds = None,
    sentences: Annotated[
        int,
        typer.Option(
            "--sentences", min=0, max=1000, metavar="N", help="Example sentences per direction."
        ),
    ] = 3,
    format: Format = OutputFormat.rich,
) -> None:
    """Compare two rows: settings, scores, curves, sentences."""
    from ablate.analysis.table import table_of
    from ablate.report.compare import compare
    from ablate.study.select import find_row

    content, root = StudyOptions(results, set, None, seeds).open(study)
    before, after = find_row(content, first), find_row(content, second)
    if before is after:
        raise UsageError(
            f'"{first}" and "{second}" are the same row, {before.label}; give two rows'
        )
    warn_of_changed_data(content, root)
    faults = score_missing(content, root)
    table = table_of(content, root, faults)
    print_faults(table)
    rows = {row.row.label: row for row in table.rows}
    found = compare(table, rows[before.label], rows[after.label], root)
    found = _with_sentences(found, root, sentences) if sentences else found
    if format is OutputFormat.json:
        print_json(found.as_json())
        return
    from ablate.report.compare import print_comparison

    print_comparison(found)


def _with_sentences(found: Comparison, root: Results, count: int) -> Comparison:
    """Add the sentences that differ most, from the first seed that both rows have translated."""
    table, pair = found.table, (found.first, found.second)
    has_corpus = len(table.corpora) == 1 and root.has_corpus(table.corpora[0])
    if (
        not has_corpus
    ):  # sentences of different corpora cannot be paired, so that the rows must share one
        return found
    from ablate.analysis.results import predictions_of

    for seed in table.study.seeds:
        runs = [next(run for run in row.runs if run.run.seed == seed) for row in pair]
        before, after = (predictions_of(run, root) for run in runs)
        if before and after:
            try:
                return _of_seed(found, root, seed, count, (before, after))
            except Damaged as error:
                echo(f"{error}; `ablate run` prepares the corpus again", err=True)
                return found
    return found


def _of_seed(
    found: Comparison,
    root: Results,
    seed: int,
    count: int,
    predictions: tuple[Sequence[str], Sequence[str]],
) -> Comparison:
    from ablate.data.corpus import Corpus
    from ablate.report.compare import differing_most

    table, (before, after) = found.table, predictions
    corpus = Corpus(root.corpus(table.corpora[0]))
    task, metric = table.study.task, table.of_items
    first, second = (task.measure_items(metric.name, texts, corpus) for texts in (before, after))
    most = differing_most(
        (before, after),
        (first, second),
        count,
        metric.more_is_better,
        lambda items: task.samples(corpus, items),
    )
    return replace(found, seed=seed, sentences=most)
