"""Columns of scores, with their signatures, and warnings about runs that are not comparable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ablate.errors import listed
from ablate.formatting import number
from ablate.stats.metrics import PPL_CHAR, Metric
from ablate.table.columns.column import Column, Form, Mark
from ablate.table.layout import OTHER_SCORE, SCORE, Essential, Remark, Warned
from ablate.table.scores import Scores, mean_and_std
from ablate.table.table import Table, TableRow


def score_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the scores in every metric, beginning with the shown metrics, and the differences from
    base.
    """
    metrics = dict.fromkeys((*table.shown_metrics, *table.experiment.measured))
    for metric in metrics:
        head = metric.title
        if metric.side:
            head += f"\n({metric.side})"
        priority = SCORE if metric in table.judged_metrics else OTHER_SCORE
        value = partial(_scores, metric)
        parts = statistics_columns(metric.name)
        column = Column(metric.name, head, value, priority=priority, parts=parts)
        if metric in table.shown_metrics:
            column = replace(
                column, text=partial(_cell, table, metric, table.best(metric), form.mark)
            )
        yield column
    for metric in metrics:
        key = f"delta_{metric.name}"
        value = partial(_difference, metric.name, table.experiment.is_paired)
        column = Column(key, value=value, parts=statistics_columns(key))
        if metric == table.shown_metrics[0]:
            column = replace(column, legend=partial(_legend, table))
        yield column


def statistics_columns(name: str) -> dict[str, tuple[str, ...]]:
    """The columns of mean, sample standard deviation and number of seeds in CSV, by name."""
    return {f"{name}_{part}": (part,) for part in ("mean", "std", "n")}


def _scores(metric: Metric, row: TableRow) -> dict[str, Any]:
    """The scores in a metric, with their parts."""
    content = row.scores[metric.name].as_json(len(row.runs))
    for part in metric.parts:
        scores = row.part(metric, part)
        if scores.n:
            content[part.name] = scores.as_json(len(row.runs))
    return content


def _difference(name: str, is_paired: bool, row: TableRow) -> dict[str, Any]:
    """The difference from base. The differences of single runs mean something only in pairs."""
    content = row.deltas.get(name, Scores()).as_json(len(row.runs))
    if not is_paired:
        content = {**content, "std": None, "values": []}
    return content


def _cell(table: Table, metric: Metric, best: float | None, mark: Mark, row: TableRow) -> str:
    """The mean score over seeds; marked if it prints the same digits as the best mean."""
    scores = row.scores[metric.name]
    seeds = len(table.experiment.seeds_of(row))
    text = mean_and_std(scores, metric.digits, seeds)
    if best is None or scores.n < seeds:
        return text
    # Of two equal printed numbers, both are marked.
    if number(scores.mean, metric.digits) == number(best, metric.digits):
        return mark(text)
    return text


def _legend(table: Table, form: Form) -> Iterator[str]:
    """Yield signatures, the marks of cells, and warnings about runs that are not comparable."""
    experiment, setup = table.experiment, table.experiment.setup
    # The conclusion always has base's score in the compared metrics.
    shown = []
    for metric in table.shown_metrics:
        if form.shows(metric.title) or metric in table.compared_metrics:
            shown.append(metric)
    for metric in shown:
        if metric.name in experiment.signatures:
            yield _signature(table, metric)
        yield from _parts(table, metric)
    if setup.decoding is not None:
        yield f"Decoding chosen for base on dev, the same for every row: {setup.decoding.text}."
    if len(setup.vocabularies) > 1:
        yield from _vocabulary_legend(table, shown)
    if cells := "; ".join(
        (*_spread_phrases(table, form, shown), *_mark_phrases(table, form, shown))
    ):
        yield Essential(f"{cells[0].upper()}{cells[1:]}.")
    logs = [metric.title for metric in shown if metric.is_log]
    if logs := [title for title in logs if form.shows(f"Δ{title}")]:
        yield f"Differences of {' and '.join(logs)} are ratios, such as ×1.050 for 5 % more."
    if len(experiment.corpora) > len(setup.vocabularies):
        corpora = ", ".join(experiment.corpora)
        yield Warned(f"WARNING: these results mix corpora {corpora}: they cannot be compared.")
    notes = experiment.notes
    yield from notes.archived
    yield from map(Remark, notes.advised_remarks)
    yield from map(Warned, (*notes.text_sentences, *notes.faults))


def _spread_phrases(table: Table, form: Form, shown: Sequence[Metric]) -> Iterator[str]:
    """Yield the meaning of means and spreads over seeds; nothing for a single seed."""
    seeds = len(table.experiment.seeds)
    if seeds == 1:
        return
    phrase = f"mean ± standard deviation over {seeds} seeds"
    if table.experiment.further_seeds:
        phrase += f", base over {seeds + len(table.experiment.further_seeds)}"
    if table.missing_runs or any("diverged" in row.states.values() for row in table.rows):
        phrase += "; (k/n): over k of n seeds"
    yield phrase
    logs = []
    for metric in shown:
        if metric.is_log and (form.has_conclusion or form.shows(metric.title)):
            place = "" if form.shows(metric.title) else " in the conclusion"
            logs.append(f"{metric.title}{place}")
    if logs:
        yield f"{' and '.join(logs)}: geometric mean ×÷ geometric standard deviation"


def _mark_phrases(table: Table, form: Form, shown: Sequence[Metric]) -> Iterator[str]:
    """Yield the meaning of marked and blank cells, if there are any."""
    if any(form.shows(metric.title) and table.best(metric) is not None for metric in shown):
        yield f"{form.best} best"
    if form.as_paper:
        yield "blank: as base"


def _vocabulary_legend(table: Table, shown: Sequence[Metric]) -> Iterator[str]:
    """Yield which metrics cannot compare the vocabularies of the rows."""
    per_token = [metric.title for metric in shown if metric.is_per_token]
    comparable = table.main_metric.title
    if PPL_CHAR.name in table.experiment.metrics:
        comparable = f"{PPL_CHAR.title}, the perplexity per character,"
    if table.main_metric.is_per_token:  # only the rows of a size have one vocabulary
        yield f"Vocabularies differ: do not compare {listed(per_token)} between them."
    elif per_token:
        yield f"Vocabularies differ: compare {comparable} and not {listed(per_token)}."


def _signature(table: Table, metric: Metric) -> str:
    signature = "; ".join(table.experiment.signatures[metric.name]) or "(nothing scored yet)"
    test_set = table.experiment.test_sets.get(metric.name)
    if test_set is not None:
        signature = f"{metric.scorer} {signature}".lstrip()
    if test_set not in (None, "test"):
        signature = f"test={test_set}, {signature}"
    return f"{metric.title}: {signature}."


def _parts(table: Table, metric: Metric) -> Iterator[str]:
    """Yield the range over the rows of each part of the scores that the results have."""
    for part in metric.parts:
        texts = {number(row.part(metric, part).mean, 3) for row in table.rows} - {""}
        if texts and part.is_in_legend:
            ends = " to ".join(dict.fromkeys((min(texts), max(texts))))
            yield f"{part.name.replace('_', ' ').capitalize()}: {ends} ({part.meaning})."
