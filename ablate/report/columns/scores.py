"""Scores of each metric, with their signatures and warnings about runs that were not made alike."""

from __future__ import annotations

from collections.abc import Iterator

from ablate.analysis.scores import mean_and_std
from ablate.analysis.table import Table
from ablate.config.metrics import PPL, PPL_CHAR, Metric
from ablate.formatting import number
from ablate.report.columns.form import Form, Mark, Section
from ablate.report.layout import OTHER_SCORE, SCORE, Column


def _score_columns(table: Table, form: Form) -> list[Column]:
    return [_scores(table, metric, form.mark) for metric in table.metrics]


def _scores(table: Table, metric: Metric, mark: Mark) -> Column:
    """A metric over seeds. The best mean of complete rows is marked, with all that print the same
    digits.
    """
    best, seeds = table.best(metric.name), len(table.study.seeds)
    cells = []
    for row in table.rows:
        scores = row.scores[metric.name]
        text = mean_and_std(scores, metric.digits, seeds)
        can_be_best = best is not None and scores.n == seeds
        # Equal to the last digit that is printed: two equal numbers, only one of them bold, would
        # confuse.
        is_best = can_be_best and number(scores.mean, metric.digits) == number(best, metric.digits)
        cells.append(mark(text) if is_best else text)
    priority = SCORE if metric == table.main else OTHER_SCORE
    return Column(f"{metric.title}\n({metric.side})", True, tuple(cells), priority=priority)


def _score_legend(table: Table, form: Form) -> list[str]:
    """Signatures of the metrics, marks of the cells, and warnings about runs that were not made
    alike.
    """
    seeds = len(table.study.seeds)
    lines = []
    for metric in table.metrics:
        lines += [_signature(table, metric), *_parts(table, metric)]
    choice = table.study.base.decoding_choice
    if choice is not None:
        lines.append(f"Decoding chosen for base on dev, the same for every row: {choice.text}.")
    if len(table.vocabularies) > 1:
        comparable = f"{PPL_CHAR.title}, the perplexity per character,"
        if PPL_CHAR.name not in table.study.task.metrics:
            comparable = table.main.title
        lines.append(f"Vocabularies differ: compare {comparable} and not {PPL.title}.")
    if seeds > 1:
        lines.append(
            f"Mean ± standard deviation over n = {seeds} seeds; k/{seeds} where only k are in."
        )
    marked = any(table.best(metric.name) is not None for metric in table.metrics)
    lines.append("* best; blank: as base." if marked else "Blank: as base.")
    if len(table.corpora) > len(table.vocabularies):
        lines.append(
            f"WARNING: these results mix corpora {', '.join(table.corpora)}: they cannot be "
            f"compared."
        )
    return [*lines, *table.archived, *table.remarks, *table.faults]


def _signature(table: Table, metric: Metric) -> str:
    signature = "; ".join(table.signatures[metric.name]) or "(nothing scored yet)"
    if metric.name in table.study.task.on_predictions:
        scorer = f"{metric.scorer} " if metric.scorer else ""
        signature = f"test={table.study.data.test}, {scorer}{signature}"
    return f"{metric.title}: {signature}."


def _parts(table: Table, metric: Metric) -> Iterator[str]:
    """Yield the range over the rows of each part of the scores, as far as the results have it."""
    for part in metric.parts:
        means = [row.part(metric, part).mean for row in table.rows]
        known = sorted(number(mean, 3) for mean in means if mean is not None)
        if known:
            span = " to ".join(dict.fromkeys((known[0], known[-1])))
            yield f"{part.name.replace('_', ' ').capitalize()}: {span} ({part.meaning})."


SCORES = Section(_score_columns, _score_legend)
