"""Comparison with base: differences, intervals, p values, verdicts; rows not finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ablate.formatting import enumeration, p_text, plural
from ablate.stats.metrics import PPL, Metric
from ablate.stats.significance import LEVEL, POWER
from ablate.stats.verdict import Verdict, joint_short
from ablate.table.columns.column import Column, Form
from ablate.table.layout import (
    DIFFERENCE,
    JOINT_VERDICT,
    OTHER_DIFFERENCE,
    P_VALUE,
    VERDICT,
)
from ablate.table.table import Table, TableRow


def difference_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the differences with their intervals, and the p value of the verdict."""
    yield Column(
        "against_base",
        value=_verdicts_json,
        legend=partial(_difference_legend, table),
        parts=_verdict_parts(table),
    )
    if table.experiment.perplexity not in table.judged:
        yield _difference(table, table.experiment.perplexity, OTHER_DIFFERENCE)
    for metric in table.judged:
        yield _difference(table, metric, DIFFERENCE)
        p_value = _cell(metric, lambda verdict: p_text(verdict.p))
        head = f"{_by(table, 'p', metric)}\n(adj.)"
        yield Column("", head, text=p_value, priority=P_VALUE, only_filled=True)
    yield Column("note", value=lambda row: row.note, legend=partial(_note_legend, table))


def _difference(table: Table, metric: Metric, priority: int) -> Column:
    below = "[95 %]" if _has_intervals(table, metric) else f"(n = {_most_seeds(table)})"
    text = _cell(metric, partial(_interval, len(table.experiment.seeds)))
    head = f"Δ{metric.title}\n{below}"
    return Column("", head, text=text, priority=priority, only_filled=True)


def verdict_column(table: Table) -> Column:
    """The verdict on each row in a word, for scripts; readers get it with its differences."""
    return Column("verdict", value=table.verdict)


def verdict_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the verdict on each row, if some row has more than one seed, and the states of rows."""
    if any(_has_intervals(table, metric) for metric in table.judged):
        yield Column(
            "",
            "verdict",
            text=partial(_verdict_text, table, is_compact=form.compact),
            priority=VERDICT if len(table.judged) == 1 else JOINT_VERDICT,
            numeric=False,
            folds=form.labels,
        )
    # Beside labels, a column of notes would leave no space: they are in the legend.
    yield Column(
        "state",
        "state",
        lambda row: row.state,
        None if form.labels else lambda row: row.note,
        partial(_verdict_legend, table),
        numeric=False,
        folds=True,
        only_filled=True,
    )


def _verdict_text(table: Table, row: TableRow, is_compact: bool = False) -> str:
    """The verdicts on a row by all metrics that the study judges by; base has none."""
    if not row.verdicts:
        return ""
    if is_compact:
        return (table.verdict(row) or "").replace(", ", ",\n")
    return joint_short([row.verdicts[metric.name] for metric in table.judged])


def _by(table: Table, head: str, metric: Metric) -> str:
    """The head of a column of p values; with its metric if the study has several."""
    if len(table.judged) > 1:
        head += f" {metric.title}"
    return head


def _verdicts_json(row: TableRow) -> dict[str, Any]:
    return {name: verdict.as_json() for name, verdict in row.verdicts.items()}


def _verdict_parts(table: Table) -> dict[str, tuple[str, ...]]:
    """Interval, p values, verdict; for metrics of predictions those of the bootstrap, too."""
    parts: dict[str, tuple[str, ...]] = {}
    for metric in table.experiment.measured:
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
        if metric.name not in row.verdicts:
            return ""
        return text(row.verdicts[metric.name])

    return cell


def _interval(seeds: int, verdict: Verdict) -> str:
    """`-4.5 [-9.1, +0.1]`, with the number of seeds while some are missing."""
    text = verdict.metric.difference_text(verdict.mean)
    if verdict.interval:
        text += f" {verdict.metric.interval_text(*verdict.interval)}"
    if text and verdict.n < seeds:
        text += f" ({verdict.n}/{seeds})"
    return text


def _difference_legend(table: Table, form: Form) -> Iterator[str]:
    judged = any(verdict.n for verdict in table.verdicts(table.main))
    if judged:
        yield from _explained_differences(table, form)
    if any(_has_intervals(table, metric) for metric in table.judged):
        yield _explained_verdicts(table, is_compact=form.compact)
        has_p = any(form.shows(_by(table, "p", metric)) for metric in table.judged)
        if len(table.judged) > 1:
            line = (
                f"Each of these {len(table.judged)} metrics is tested at "
                f"{LEVEL / len(table.judged):.3g}, so that together they keep {LEVEL:g} "
                f"(Bonferroni)"
            )
            if has_p:
                line += f"; p values are multiplied by {len(table.judged)}"
            yield f"{line}."
        yield from table.experiment.standing.legend(table.experiment.error, _kept(table))
        if has_p and table.experiment.setup is not None:
            yield "p: the corrected p value of the verdict; `ablate compare` shows each test."
    elif judged and len(table.experiment.seeds) == 1:
        yield (
            "One seed (n = 1): the variance over seeds is unknown, so no row has a verdict: cannot "
            "tell."
        )


def _explained_verdicts(table: Table, is_compact: bool = False) -> str:
    noise, rows = plural(len(table.experiment.seeds), "seed"), plural(table.experiment.tests, "row")
    if len(table.families) > 1:
        rows += " of all sizes"
    tested, margins, within = dict[str, None](), dict[str, None](), ""
    for metric in table.judged:
        for verdict in table.verdicts(metric):
            if verdict.bootstrap:
                tested[f" and of the test {metric.item}s"] = None
            if verdict.margin is not None:
                of_metric = f" {metric.title}" if len(table.judged) > 1 else ""
                margins[f"{verdict.margin_text}{of_metric}"] = None
    if margins:
        within = f" as good as base: significantly less than {enumeration(margins)} away."
    titles = enumeration(
        metric.title if metric.more_is_better else f"{metric.title} (lower is better)"
        for metric in table.judged
    )
    several, unknown = "", " cannot tell: not significant."
    if len(table.judged) > 1:
        several = " worse by some metrics: the others cannot tell."
    if not is_compact:
        unknown = (
            f" cannot tell (d): not significant; a true difference of d is found with {POWER:.0%} "
            f"probability."
        )
    return (
        f"verdict: by {titles}. worse, better: beyond the noise of {noise}{''.join(tested)} "
        f"(p < {LEVEL:g}, Holm-corrected over {rows}).{several}{within}{unknown}"
    )


def _explained_differences(table: Table, form: Form) -> Iterator[str]:
    """Yield the meaning of the differences; the metrics are named if only some have intervals."""
    shown = []
    for metric in dict.fromkeys((table.experiment.perplexity, *table.judged)):
        if form.shows(f"Δ{metric.title}"):
            shown.append(metric)
    if shown and _most_seeds(table) == 1:
        yield "Δ: difference from base with one seed."
        return
    several = [metric for metric in shown if _has_intervals(table, metric)]
    without = [metric for metric in shown if metric not in several]
    if several:
        further = ", with base's further seeds" if table.experiment.further_seeds else ""
        text = (
            f"mean difference from base, paired by seed{further}, with an interval of at least "
            f"95 % for each row alone"
        )
        judged = ""
        for metric in table.judged:
            if metric in several:
                judged += _judged_by_intervals(table, metric)
        yield f"{_heads(several, shown)}: {text}{judged}."
    if without:
        why = f"the seeds show no spread in {' and '.join(metric.title for metric in without)}"
        for verdict in table.verdicts(table.main):
            if verdict.is_early:
                why = f"{verdict.look.text} is not complete"
                break
        heads = _heads(without, shown)
        yield f"{heads}: mean difference from base; no interval, because {why}."


def _judged_by_intervals(table: Table, metric: Metric) -> str:
    """Relation of a metric's intervals to the verdicts, with the rows that do not follow it."""
    exceptions = []
    for row in table.rows:
        verdict = row.verdicts.get(metric.name)
        if verdict and verdict.seed_test:
            is_beside_0 = not verdict.seed_test.low <= 0 <= verdict.seed_test.high
            if verdict.is_different != is_beside_0:
                exceptions.append(row.label)
    # A ratio of 1, the exponential of 0, is no difference.
    text = f"; the interval of Δ{metric.title} excludes {int(metric.is_log)} exactly if the verdict"
    text += " is worse or better"
    if len(table.judged) > 1:
        text = text.replace("the verdict", f"the verdict by {metric.title}")
    if exceptions:
        rows = ", ".join(exceptions)
        text += f" (exceptions, where diverged seeds or an earlier look decided: {rows})"
    return text


def _heads(metrics: Sequence[Metric], shown: Sequence[Metric]) -> str:
    """The heads of the columns of some metrics; `Δ` for all."""
    if metrics == shown:
        return "Δ"
    return ", ".join(f"Δ{metric.title}" for metric in metrics)


def _kept(table: Table) -> dict[str, None]:
    """Labels of the rows whose verdict was reached with fewer seeds, and not with all so far."""
    kept = dict[str, None]()
    for row in table.rows:
        for metric in table.judged:
            verdict = row.verdicts.get(metric.name)
            if verdict and verdict.is_different and verdict.p is not None and verdict.p >= LEVEL:
                kept[row.label] = None
    return kept


def _verdict_legend(table: Table, form: Form) -> Iterator[str]:
    """Yield the verdicts as lines, such as `worse: A h=1, B d_k=16`, if no column shows them."""
    if not form.shows("verdict"):
        yield from _by_word(partial(_verdict_text, table), table)


def _note_legend(table: Table, form: Form) -> Iterator[str]:
    """Yield each note with its rows: `pending: A h=1, B d_k=16`."""
    if form.labels:
        yield from _by_word(lambda row: row.note, table)


def _by_word(word: Callable[[TableRow], str], table: Table) -> Iterator[str]:
    labels: dict[str, list[str]] = {}
    for row in table.rows:
        labels.setdefault(word(row), []).append(row.label)
    for text, rows in labels.items():
        if text:
            yield f"{text}: {', '.join(rows)}."


def _most_seeds(table: Table) -> int:
    """Largest number of seeds that a row shares with base; 1 if no row has any."""
    return max((verdict.n for verdict in table.verdicts(table.main) if verdict.n), default=1)


def _has_intervals(table: Table, metric: Metric) -> bool:
    return any(verdict.seed_test for verdict in table.verdicts(metric))
