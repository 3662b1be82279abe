"""Comparison with base: differences with their intervals, p values, verdicts; and rows that are not
finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ablate.analysis.results import measured_metrics
from ablate.analysis.scores import verdict_json
from ablate.analysis.table import Table, TableRow
from ablate.config.metrics import PPL, Metric
from ablate.formatting import p_text, plural
from ablate.report.columns.column import Column, Form
from ablate.report.layout import DIFFERENCE, OTHER_DIFFERENCE, P_VALUE, VERDICT
from ablate.stats.significance import LEVEL, POWER
from ablate.stats.verdict import Verdict


def difference_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the differences with their intervals, and the p value of the verdict."""
    yield Column(
        "against_base",
        value=lambda row: dict(
            zip(row.verdicts, map(verdict_json, row.verdicts.values()), strict=True)
        ),
        legend=partial(_difference_legend, table),
        parts=_verdict_parts(table),
    )
    n = f"(n = {_most_seeds(table)})"
    others = [] if table.perplexity in table.judged else [table.perplexity]
    for metric in (*others, *table.judged):
        yield Column(
            "",
            f"Δ{metric.title}\n{'[95 %]' if _has_intervals(table, metric) else n}",
            text=_cell(metric, partial(_interval, len(table.study.seeds))),
            priority=DIFFERENCE if metric in table.judged else OTHER_DIFFERENCE,
            only_filled=True,
        )
        if metric in table.judged:
            p_value = _cell(metric, lambda verdict: p_text(verdict.p))
            head = f"{_by(table, 'p', metric)}\n(adj.)"
            yield Column("", head, text=p_value, priority=P_VALUE, only_filled=True)
    yield Column("note", value=lambda row: row.note, legend=partial(_note_legend, table))


def verdict_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the verdict on each row, if some row has more than one seed, and the states of rows."""
    for metric in table.judged:
        if not _has_intervals(table, metric):
            continue
        yield Column(
            "",
            _by(table, "verdict", metric),
            text=_cell(metric, lambda verdict: verdict.short),
            legend=partial(_verdict_legend, table, metric),
            priority=VERDICT,
            numeric=False,
            folds=form.labels,
        )
    # Beside labels, a column of notes would leave no space: they are in the legend.
    yield Column(
        "state",
        "state",
        lambda row: row.state,
        None if form.labels else lambda row: row.note,
        numeric=False,
        folds=True,
        only_filled=True,
    )


def _by(table: Table, head: str, metric: Metric) -> str:
    """The head of a column of verdicts; with its metric if the study has several."""
    return f"{head} {metric.title}" if len(table.judged) > 1 else head


def _verdict_parts(table: Table) -> dict[str, tuple[str, ...]]:
    """Interval, p values and verdict of the difference from base; the paired bootstrap for metrics
    of predictions.
    """
    parts: dict[str, tuple[str, ...]] = {}
    for metric in measured_metrics(table.study):
        name = metric.name
        for part in ("low", "high", "p", "p_holm", "p_adjusted", "minimum_detectable"):
            parts[f"delta_{name}_{part}"] = (name, part)
        parts[f"verdict_{name}"] = (name, "verdict")
        if name != PPL.name:
            for part in ("low", "high", "p", "p_holm"):
                parts[f"test_set_{name}_{part}"] = (name, "test_set", part)
    return parts


def _cell(metric: Metric, text: Callable[[Verdict], str]) -> Callable[[TableRow], str]:
    """The cell of a row from its verdict; base has none."""

    def cell(row: TableRow) -> str:
        return text(row.verdicts[metric.name]) if metric.name in row.verdicts else ""

    return cell


def _interval(seeds: int, verdict: Verdict) -> str:
    """`-4.5 [-9.1, +0.1]`, with the number of seeds while some are missing."""
    text = verdict.metric.difference_text(verdict.mean)
    if verdict.interval:
        text += f" {verdict.metric.interval_text(*verdict.interval)}"
    return f"{text} ({verdict.n}/{seeds})" if text and verdict.n < seeds else text


def _difference_legend(table: Table, form: Form) -> Iterator[str]:
    judged = any(verdict.n for verdict in table.verdicts(table.main))
    if judged:
        yield from _explained_differences(table, form)
    if any(_has_intervals(table, metric) for metric in table.judged):
        yield from (_explained_verdicts(table, metric) for metric in table.judged)
        if len(table.judged) > 1:
            yield (
                f"Each of these {len(table.judged)} metrics is tested at "
                f"{LEVEL / len(table.judged):.3g}, so that together they keep {LEVEL:g} "
                f"(Bonferroni); p values are multiplied by {len(table.judged)}."
            )
        yield from _look_legend(table)
        if form.shows(_by(table, "p", table.main)) and not table.is_measured_elsewhere:
            yield "p: the corrected p value of the verdict; `ablate compare` shows each test."
    elif judged and len(table.study.seeds) == 1:
        yield (
            "One seed (n = 1): the variance over seeds is unknown, so no row has a verdict: cannot "
            "tell."
        )


def _explained_verdicts(table: Table, metric: Metric) -> str:
    rows, noise = plural(table.family, "row"), plural(len(table.study.seeds), "seed")
    if len(table.bases) > 1:
        rows = "the rows of each size"
    verdicts, within = table.verdicts(metric), ""
    if any(verdict.bootstrap for verdict in verdicts):
        noise += f" and of the test {metric.item}s"
    for verdict in verdicts:
        if verdict.margin is not None:
            within = f" as good as base: significantly less than {verdict.margin_text} away."
    return (
        f"verdict: by {metric.title}. worse, better: beyond the noise of {noise} "
        f"(p < {LEVEL:g}, Holm-corrected over {rows}).{within} cannot tell (d): not "
        f"significant; a true difference of d is found with {POWER:.0%} probability."
    )


def _explained_differences(table: Table, form: Form) -> Iterator[str]:
    """Yield the meaning of the differences; the metrics are named if only some have intervals."""
    several: list[Metric] = []
    without: list[Metric] = []
    for metric in dict.fromkeys((table.perplexity, *table.judged)):
        if form.shows(f"Δ{metric.title}"):
            (several if _has_intervals(table, metric) else without).append(metric)
    if (several or without) and _most_seeds(table) == 1:
        yield "Δ: difference from base with one seed."
        return
    if several:
        further = ", with base's further seeds" if table.study.further_seeds else ""
        text = (
            f"mean difference from base, paired by seed{further}, with an interval of at least "
            f"95 % for each row alone"
        )
        judged = ""
        for metric in table.judged:
            if metric in several:
                judged += _judged_by_intervals(table, metric)
        yield f"{_heads(several) if without else 'Δ'}: {text}{judged}."
    if without:
        titles = " and ".join(metric.title for metric in without)
        why = f"the seeds show no spread in {titles}"
        for verdict in table.verdicts(table.main):
            if verdict.is_early and verdict.look:
                why = f"{verdict.look.text} is not complete"
                break
        yield (
            f"{_heads(without) if several else 'Δ'}: mean difference from base; no interval, "
            f"because {why}."
        )


def _judged_by_intervals(table: Table, metric: Metric) -> str:
    """Relation of a metric's intervals to the verdicts, with the rows that do not follow
    it.
    """
    exceptions = []
    for row in table.rows:
        verdict = row.verdicts.get(metric.name)
        if verdict and verdict.seed_test:
            is_beside_0 = not verdict.seed_test.low <= 0 <= verdict.seed_test.high
            if verdict.is_different != is_beside_0:
                exceptions.append(row.row.label)
    rest = ""
    if exceptions:
        rest = f", except for {', '.join(exceptions)}, decided by diverged seeds or an earlier look"
    return (
        f"; the interval of Δ{metric.title} excludes {1 if metric.is_log else 0} exactly if the "
        f"verdict is worse or better{rest}"
    )


def _heads(metrics: Sequence[Metric]) -> str:
    return ", ".join(f"Δ{metric.title}" for metric in metrics)


def _look_legend(table: Table) -> Iterator[str]:
    """Yield the look of the verdicts, and the rows whose verdict is of an earlier one."""
    if table.look is None:
        return
    kept = dict[str, None]()
    for row in table.rows:
        for metric in table.judged:
            verdict = row.verdicts.get(metric.name)
            if verdict and verdict.is_different and verdict.p is not None and verdict.p >= LEVEL:
                kept[row.row.label] = None
    earlier = f" The verdict of an earlier look stays: {', '.join(kept)}." if kept else ""
    yield (
        f"Judged at {table.look.text}, at the level {table.look.level:.3g}; all looks together "
        f"spend {table.error:.3g}."
        f" p values are multiplied by {LEVEL / table.look.level:.3g}.{earlier}"
    )


def _verdict_legend(table: Table, metric: Metric, form: Form) -> Iterator[str]:
    """Yield the verdicts as lines, such as `worse: A h=1, B d_k=16`, if no column shows them."""
    if not form.shows(_by(table, "verdict", metric)):
        yield from _by_word(_cell(metric, lambda verdict: verdict.short), table)


def _note_legend(table: Table, form: Form) -> Iterator[str]:
    """Yield each note with its rows: `pending: A h=1, B d_k=16`."""
    if form.labels:
        yield from _by_word(lambda row: row.note, table)


def _by_word(word: Callable[[TableRow], str], table: Table) -> Iterator[str]:
    labels: dict[str, list[str]] = {}
    for row in table.rows:
        labels.setdefault(word(row), []).append(row.row.label)
    for text, rows in labels.items():
        if text:
            yield f"{text}: {', '.join(rows)}."


def _most_seeds(table: Table) -> int:
    """Largest number of seeds that a row shares with base; 1 if no row has any."""
    return max((verdict.n for verdict in table.verdicts(table.main) if verdict.n), default=1)


def _has_intervals(table: Table, metric: Metric) -> bool:
    return any(verdict.seed_test for verdict in table.verdicts(metric))
