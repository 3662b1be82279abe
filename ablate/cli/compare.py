"""`ablate compare`: two rows side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from ablate.cli.options import (
    DEFAULT_RESULTS,
    Format,
    OutputFormat,
    Overrides,
    ResultsRoot,
    Seeds,
    StudyFile,
    StudyOptions,
    argument,
    option,
    print_faults,
    scored_table,
)
from ablate.errors import Damaged, UsageError
from ablate.store import Results
from ablate.streams import echo, print_json

if TYPE_CHECKING:
    from ablate.report.compare import RowComparison

EXAMPLE = "ablate compare study.yaml base 'D dropout=0.3'"

RowName = Annotated[str, argument("ROW", "A row's label, or a pattern for one.")]


def command(
    study: StudyFile,
    first: RowName,
    second: RowName,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    seeds: Seeds = None,
    sentences: Annotated[
        int, option("--sentences", "Example sentences per direction.", "N", min=0, max=1000)
    ] = 3,
    format: Format = OutputFormat.rich,
) -> None:
    """Compare two rows: settings, scores, curves, sentences."""
    from ablate.report.compare import compare_rows, print_comparison
    from ablate.study.select import find_row

    content, root = StudyOptions(results, set, None, seeds).open(study)
    before, after = find_row(content, first), find_row(content, second)
    if before is after:
        raise UsageError(
            f'"{first}" and "{second}" are the same row, {before.label}; give two rows'
        )
    table = scored_table(content, root)
    print_faults(table)
    rows = {row.row.label: row for row in table.rows}
    comparison = compare_rows(table, rows[before.label], rows[after.label], root)
    if sentences:
        comparison = _with_sentences(comparison, root, sentences)
    if format is OutputFormat.json:
        print_json(comparison.as_json())
    else:
        print_comparison(comparison)


def _with_sentences(comparison: RowComparison, root: Results, count: int) -> RowComparison:
    """Add the sentences that differ most, from the first seed that both rows have translated."""
    table, pair = comparison.table, (comparison.first, comparison.second)
    if not table.study.task.scores_items(table.of_items):  # a probe has items of its own
        return comparison
    # Sentences of different corpora cannot be paired.
    if len(table.corpora) != 1 or not root.has_corpus(table.corpora[0]):
        return comparison
    from ablate.analysis.results import predictions_of

    for seed in table.study.seeds:
        runs = [next(run for run in row.runs if run.run.seed == seed) for row in pair]
        before, after = (table.study.task.of_items(predictions_of(run, root)) for run in runs)
        if before and after:
            try:
                return _of_seed(comparison, root, seed, count, (before, after))
            except Damaged as error:
                echo(f"{error}; `ablate run` prepares the corpus again", err=True)
                break
    return comparison


def _of_seed(
    comparison: RowComparison,
    root: Results,
    seed: int,
    count: int,
    predictions: tuple[Sequence[str], Sequence[str]],
) -> RowComparison:
    from ablate.data.corpus import Corpus
    from ablate.report.compare import differing_most

    table, (before, after) = comparison.table, predictions
    corpus = Corpus(root.corpus(table.corpora[0]))
    task, metric = table.study.task, table.of_items
    scores_before = task.measure_items(metric.name, before, corpus)
    scores_after = task.measure_items(metric.name, after, corpus)
    most = differing_most(
        predictions,
        (scores_before, scores_after),
        count,
        metric.more_is_better,
        lambda items: task.samples(corpus, items),
    )
    return replace(comparison, seed=seed, sentences=most)
