"""Comparison with base: differences with their intervals, p values, and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ablate.analysis.table import Table
from ablate.config.metrics import Metric
from ablate.formatting import interval_text, plural, signed
from ablate.report.columns.form import Form, Section
from ablate.report.layout import DIFFERENCE, OTHER_DIFFERENCE, P_VALUE, VERDICT, Column
from ablate.stats.significance import LEVEL
from ablate.stats.verdict import Verdict


def _difference_columns(table: Table, form: Form) -> list[Column]:
    """Differences with their intervals, and the p value of the verdict; columns without any cell
    are left out.
    """
    main = replace(_differences(table, table.main), priority=DIFFERENCE)
    perplexity = replace(_differences(table, table.perplexity), priority=OTHER_DIFFERENCE)
    p_value = replace(
        _verdict_column(table, "p\n(adj.)", table.main, _p_value, numeric=True), priority=P_VALUE
    )
    columns = [main] if table.main == table.perplexity else [perplexity, main]
    return [column for column in (*columns, p_value) if any(column.cells)]


def _differences(table: Table, metric: Metric) -> Column:
    seeds = len(table.study.seeds)
    spread = "[95 %]" if _has_intervals(table, metric) else f"(n = {_most_seeds(table)})"
    head = f"Δ{metric.title}\n{spread}"
    return _verdict_column(
        table, head, metric, lambda verdict: _interval(verdict, seeds), numeric=True
    )


def _interval(verdict: Verdict, seeds: int) -> str:
    """`-4.5 [-9.1, +0.1]`, with the number of seeds while some are missing."""
    digits, text = verdict.metric.digits, signed(verdict.mean, verdict.metric.digits)
    if verdict.seed_test:
        text += f" {interval_text(verdict.seed_test.low, verdict.seed_test.high, digits)}"
    return f"{text} ({verdict.n}/{seeds})" if text and verdict.n < seeds else text


def _p_value(verdict: Verdict) -> str:
    """The p value that the verdict follows from."""
    if verdict.p is None:
        return ""
    return "<0.001" if verdict.p < 0.001 else f"{verdict.p:.3f}"


def _difference_legend(table: Table, form: Form) -> list[str]:
    verdicts, several = verdicts_of(table, table.main), _has_verdicts(table)
    seeds = len(table.study.seeds)
    lines = (
        list(_explained_differences(table, form)) if any(verdict.n for verdict in verdicts) else []
    )
    if several:
        several_bases = sum(row.row.is_base for row in table.rows) > 1
        rows = "the rows of each size" if several_bases else plural(table.family, "row")
        sentences = (
            f" and of the test {table.main.item}s"
            if any(verdict.bootstrap for verdict in verdicts)
            else ""
        )
        margin = next((verdict.margin for verdict in verdicts if verdict.margin is not None), None)
        within = (
            "" if margin is None else f" as good as base: significantly less than ±{margin:g} away."
        )
        lines.append(
            f"verdict: by {table.main.title}. worse, better: beyond the noise of "
            f"{plural(seeds, 'seed')}{sentences} "
            f"(p < {LEVEL:g}, Holm-corrected over {rows}).{within} cannot tell (d): not "
            "significant; d is the smallest difference that this study could see."
        )
        lines += _look_legend(table)
        if form.shows("p"):
            lines.append(
                "p: the corrected p value of the verdict; `ablate compare` shows each test."
            )
    elif seeds == 1 and any(verdict.n for verdict in verdicts):
        lines.append(
            "One seed (n = 1): the variance over seeds is unknown, so no row has a verdict: cannot "
            "tell."
        )
    return lines


def _explained_differences(table: Table, form: Form) -> Iterator[str]:
    """Yield the meaning of the differences; the metrics are named if only some have intervals."""
    metrics = [
        one for one in dict.fromkeys((table.perplexity, table.main)) if form.shows(f"Δ{one.title}")
    ]
    several = [metric for metric in metrics if _has_intervals(table, metric)]
    without = [metric for metric in metrics if metric not in several]
    if metrics and _most_seeds(table) == 1:
        several, without = [], []
        yield "Δ: difference from base with one seed."
    if several:
        text = (
            "mean difference from base, paired by seed, with an interval of at least 95 % for "
            "each row alone"
        )
        judged = _judged_by_intervals(table) if table.main in several else ""
        yield f"{_heads(several) if without else 'Δ'}: {text}{judged}."
    if without:
        early = next(
            (one.look for one in verdicts_of(table, table.main) if one.is_early and one.look), None
        )
        titles = " and ".join(metric.title for metric in without)
        why = f"{early.text} is not complete" if early else f"the seeds show no spread in {titles}"
        yield (
            f"{_heads(without) if several else 'Δ'}: mean difference from base; no interval, "
            f"because {why}."
        )


def _judged_by_intervals(table: Table) -> str:
    """Relation of the main metric's intervals to the verdicts, with the rows that do not follow
    it.
    """
    found = (
        (row.row.label, row.verdicts[table.main.name])
        for row in table.rows
        if table.main.name in row.verdicts
    )
    others = [
        label
        for label, verdict in found
        if (test := verdict.seed_test) and verdict.is_different != (not test.low <= 0 <= test.high)
    ]
    rest = (
        f", except for {', '.join(others)}, decided by diverged seeds or an earlier look"
        if others
        else ""
    )
    return (
        f"; the interval of Δ{table.main.title} excludes 0 exactly if the verdict is worse or "
        f"better{rest}"
    )


def _heads(metrics: Sequence[Metric]) -> str:
    return ", ".join(f"Δ{metric.title}" for metric in metrics)


def _look_legend(table: Table) -> list[str]:
    """The look of the verdicts, and the rows whose verdict is of an earlier one."""
    if table.look is None:
        return []
    rows = [
        (row, row.verdicts[table.main.name])
        for row in table.rows
        if table.main.name in row.verdicts
    ]
    kept = [
        row.row.label
        for row, one in rows
        if one.is_different and one.p is not None and one.p >= LEVEL
    ]
    earlier = f" The verdict of an earlier look stays: {', '.join(kept)}." if kept else ""
    return [
        f"Judged at {table.look.text}, at the level {table.look.level:.3g}; all looks together "
        f"spend {table.error:.3g}."
        f" p values are multiplied by {LEVEL / table.look.level:.3g}.{earlier}"
    ]


def _verdict_columns(table: Table, form: Form) -> list[Column]:
    """The verdict on each row, if some row has more than one seed."""
    if not _has_verdicts(table):
        return []
    column = _verdict_column(
        table, "verdict", table.main, lambda verdict: verdict.short, numeric=False
    )
    return [replace(column, priority=VERDICT, folds=form.labels)]


def _verdict_legend(table: Table, form: Form) -> list[str]:
    """Verdicts as lines, such as `worse: A h=1, B d_k=16`, if the form has no column for them."""
    if form.shows("verdict") or not _has_verdicts(table):
        return []
    words = [
        (row.verdicts[table.main.name].short, row.row.label) for row in table.rows if row.verdicts
    ]
    distinct = dict.fromkeys(word for word, _ in words if word)
    return [
        f"{one}: {', '.join(label for word, label in words if word == one)}." for one in distinct
    ]


def _verdict_column(
    table: Table, head: str, metric: Metric, cell: Callable[[Verdict], str], *, numeric: bool
) -> Column:
    """A cell for each row from its verdict; base has none."""
    verdicts = [row.verdicts.get(metric.name) for row in table.rows]
    return Column(head, numeric, tuple(cell(verdict) if verdict else "" for verdict in verdicts))


def verdicts_of(table: Table, metric: Metric) -> list[Verdict]:
    """The verdicts in a metric on every row but base."""
    return [row.verdicts[metric.name] for row in table.rows if metric.name in row.verdicts]


def _most_seeds(table: Table) -> int:
    """Largest number of seeds that a row shares with base; 1 if no row has any."""
    return max((verdict.n for verdict in verdicts_of(table, table.main) if verdict.n), default=1)


def _has_verdicts(table: Table) -> bool:
    return _has_intervals(table, table.main)


def _has_intervals(table: Table, metric: Metric) -> bool:
    return any(verdict.seed_test for verdict in verdicts_of(table, metric))


DIFFERENCES = Section(_difference_columns, _difference_legend)
VERDICTS = Section(_verdict_columns, _verdict_legend)
