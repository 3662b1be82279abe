"""Columns of the comparison with base: differences, intervals, p values, verdicts, states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ablate.formatting import enumeration, p_text, percent, plural
from ablate.stats.metrics import PPL, Metric
from ablate.stats.significance import LEVEL, POWER
from ablate.stats.verdict import Verdict, joint_short
from ablate.table.columns.column import Column, Form
from ablate.table.experiment import Experiment
from ablate.table.layout import (
    DIFFERENCE,
    JOINT_VERDICT,
    OTHER_DIFFERENCE,
    P_VALUE,
    VERDICT,
    Meaning,
)
from ablate.table.scores import count_of
from ablate.table.table import Table, TableRow


def difference_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the differences with their intervals, and the p value of the verdict."""
    yield Column(
        "against_base",
        value=lambda row: {name: row.verdicts[name].as_json() for name in row.verdicts},
        legend=partial(_difference_legend, table),
        parts=_verdict_parts(table),
    )
    if table.experiment.perplexity not in table.judged_metrics:
        yield _difference(table, table.experiment.perplexity, OTHER_DIFFERENCE)
    for metric in table.judged_metrics:
        yield _difference(table, metric, DIFFERENCE)
        p_value = _cell(metric, lambda verdict: p_text(verdict.p_adjusted))
        head = f"{_p_head(table, metric)}\n(adj.)"
        yield Column("", head, text=p_value, priority=P_VALUE, only_filled=True)
    yield Column("note", value=lambda row: row.note, legend=partial(_note_legend, table))


def _difference(table: Table, metric: Metric, priority: int) -> Column:
    below = "[95 %]" if _has_intervals(table, metric) else f"(n = {_most_seeds(table)})"
    text = _cell(metric, partial(_interval, len(table.experiment.seeds)))
    head = f"Δ{metric.title}\n{below}"
    return Column("", head, text=text, priority=priority, only_filled=True)


def verdict_column(table: Table) -> Column:
    """The verdict on each row, for scripts."""
    return Column("verdict", value=table.verdict)


def verdict_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the verdicts, unless every row has a single seed, and the states of rows."""
    if any(_has_intervals(table, metric) for metric in table.judged_metrics):
        yield Column(
            "",
            "verdict",
            text=partial(_verdict_text, table, is_compact=form.compact),
            priority=VERDICT if len(table.judged_metrics) == 1 else JOINT_VERDICT,
            numeric=False,
            folds=not form.compact,
        )
    yield Column("state", value=lambda row: row.state, legend=partial(_verdict_legend, table))


def _verdict_text(table: Table, row: TableRow, is_compact: bool = False) -> str:
    """The verdict on a row by all metrics of the verdicts; empty for base."""
    if not row.verdicts:
        return ""
    if is_compact:
        return (table.verdict(row) or "").replace(", ", ",\n")
    return joint_short([row.verdicts[metric.name] for metric in table.judged_metrics])


def _p_head(table: Table, metric: Metric) -> str:
    """The head of a column of p values, with the metric if the study judges by several."""
    return f"p {metric.title}" if len(table.judged_metrics) > 1 else "p"


def _verdict_parts(table: Table) -> dict[str, tuple[str, ...]]:
    """The columns of verdicts in CSV, by metric: interval, p values, verdict; and the interval and
    p values of the bootstrap for metrics of predictions.
    """
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
    """A function that prints the cell of a row from its verdict; empty for base."""

    def cell(row: TableRow) -> str:
        if metric.name not in row.verdicts:
            return ""
        return text(row.verdicts[metric.name])

    return cell


def _interval(seeds: int, verdict: Verdict) -> str:
    """`-4.5 [-9.1, +0.1]`, with the number of seeds if some are missing."""
    text = verdict.metric.difference_text(verdict.mean, verdict.interval)
    return text + count_of(verdict.n, seeds)


def _difference_legend(table: Table, form: Form) -> Iterator[str]:
    judged = any(verdict.n for verdict in table.verdicts(table.main_metric))
    if judged:
        yield from _difference_lines(table, form)
    if any(_has_intervals(table, metric) for metric in table.judged_metrics):
        yield _verdict_line(table, is_compact=form.compact)
        has_p = any(form.shows(_p_head(table, metric)) for metric in table.judged_metrics)
        if len(table.judged_metrics) > 1:
            line = (
                f"Each of these {len(table.judged_metrics)} metrics is tested at "
                f"{LEVEL / len(table.judged_metrics):.3g}, so that the level of all together is "
                f"{LEVEL:g} (Bonferroni)"
            )
            if has_p:
                line += f"; p values are multiplied by {len(table.judged_metrics)}"
            yield f"{line}."
        experiment = table.experiment
        earlier = _earlier_verdicts(table)
        if legend := experiment.looks.legend_of_verdicts(experiment.error_rate, earlier):
            yield legend
        if has_p and table.experiment.is_study:
            yield "p: the corrected p value of the verdict; `ablate compare` shows each test."
    elif judged and len(table.experiment.seeds) == 1:
        yield (
            "One seed (n = 1): the variance over seeds is unknown, so no row has a verdict: cannot "
            "tell."
        )


def published_difference_lines(table: Table) -> Iterator[str]:
    """Yield the meaning of the differences, and the levels of several metrics, for a reader of a
    paper.
    """
    judged = table.judged_metrics
    if not any(verdict.n for verdict in table.verdicts(table.main_metric)):
        return
    logs = [metric.title for metric in judged if metric.is_log]
    ratios = f"; of {enumeration(logs)}: a ratio" if logs else ""
    if _most_seeds(table) == 1:
        yield f"Δ: difference from base with one seed, so no row has a verdict{ratios}."
        return
    text = f"Δ: {_difference_text(table.experiment)}"
    if not any(_has_intervals(table, metric) for metric in judged):
        yield f"{text}{ratios}."
        return
    yield f"{text}, with its confidence interval of 95 % or more{ratios}."
    if len(judged) > 1:
        level = LEVEL / len(judged)
        yield f"Each of the {len(judged)} metrics is tested at {level:.3g} (Bonferroni)."


def _verdict_line(table: Table, is_compact: bool = False) -> str:
    """The meaning of the verdicts."""
    seeds = plural(len(table.experiment.seeds), "seed")
    rows = plural(table.experiment.n_tests, "row")
    if len(table.families) > 1:
        rows += " of all sizes"
    items: dict[str, None] = {}
    margins: dict[str, None] = {}
    for metric in table.judged_metrics:
        for verdict in table.verdicts(metric):
            if verdict.bootstrap:
                items[f" and of the test {metric.item}s"] = None
            if verdict.margin is not None:
                title = f" {metric.title}" if len(table.judged_metrics) > 1 else ""
                margins[f"{verdict.margin_text}{title}"] = None
    equivalent = ""
    if margins:
        equivalent = (
            f" as good as base: the difference is significantly smaller than the margin, "
            f"{enumeration(margins)}."
        )
    titles = enumeration(
        metric.title if metric.more_is_better else f"{metric.title} (lower is better)"
        for metric in table.judged_metrics
    )
    several = ""
    if len(table.judged_metrics) > 1:
        several = " worse or better by some metrics: not significant by the others."
    undecided = " cannot tell: not significant."
    if not is_compact:
        undecided = (
            f" cannot tell (d): not significant; d is the detectable difference: a true difference "
            f"of d is found with a probability of {percent(POWER)}."
        )
        if sizes := dict.fromkeys(_impossible_sizes(table)):
            undecided += f" {' and '.join(sizes)}: larger than any possible difference."
    return Meaning(
        f"verdict: by {titles}. worse, better: beyond the noise of {seeds}{''.join(items)} "
        f"(p < {LEVEL:g}, Holm-corrected over {rows}).{several}{equivalent}{undecided}"
    )


def _impossible_sizes(table: Table) -> Iterator[str]:
    """Yield the detectable differences that are larger than any possible difference: `>100`."""
    for metric in table.judged_metrics:
        for verdict in table.verdicts(metric):
            if verdict.word == "cannot tell" and verdict.detectable_text.startswith(">"):
                yield verdict.detectable_text


def _difference_lines(table: Table, form: Form) -> Iterator[str]:
    """Yield the meaning of the differences; the metrics are named if only some have intervals."""
    shown = []
    for metric in dict.fromkeys((table.experiment.perplexity, *table.judged_metrics)):
        if form.shows(f"Δ{metric.title}"):
            shown.append(metric)
    if shown and _most_seeds(table) == 1:
        yield "Δ: difference from base with one seed."
        return
    with_intervals = [metric for metric in shown if _has_intervals(table, metric)]
    without_intervals = [metric for metric in shown if metric not in with_intervals]
    if with_intervals:
        text = (
            f"{_difference_text(table.experiment)}, with a confidence interval. Each interval "
            f"covers the true difference with a probability of 95 % or more; the probability that "
            f"all intervals do is smaller."
        )
        for metric in table.judged_metrics:
            if metric in with_intervals:
                text += _intervals_and_verdicts(table, metric)
        yield f"{_heads(with_intervals, shown)}: {text}"
        if table.experiment.further_seeds and table.experiment.is_paired:
            yield (
                "Base has seeds that the rows do not have. These may count less in Δ than in the "
                "shown mean of base, because no score of a row is paired with them. Δ then differs "
                "from the difference of the shown means."
            )
    if without_intervals:
        titles = " and ".join(metric.title for metric in without_intervals)
        reason = f"the differences show no spread in {titles}"
        for verdict in table.verdicts(table.main_metric):
            if verdict.is_early:
                reason = f"{verdict.look.text} is not complete"
                break
        heads = _heads(without_intervals, shown)
        yield f"{heads}: mean difference from base; no interval, because {reason}."


def _difference_text(experiment: Experiment) -> str:
    """The difference from base in words, with the pairing of the runs."""
    if not experiment.is_paired:
        return "mean of the row minus mean of base"
    return "mean difference from base, paired by seed"


def _intervals_and_verdicts(table: Table, metric: Metric) -> str:
    """The relation of intervals and verdicts in a metric, with the rows that are exceptions."""
    exceptions = []
    for row in table.rows:
        verdict = row.verdicts.get(metric.name)
        if verdict and verdict.seed_test:
            excludes_0 = not verdict.seed_test.low <= 0 <= verdict.seed_test.high
            if verdict.is_different != excludes_0:
                exceptions.append(row.label)
    no_difference = int(metric.is_log)  # a ratio of 1
    by = f" by {metric.title}" if len(table.judged_metrics) > 1 else ""
    text = (
        f" The interval of Δ{metric.title} excludes {no_difference} if and only if the "
        f"verdict{by} is worse or better"
    )
    if exceptions:
        rows = ", ".join(exceptions)
        text += f" (exceptions, where diverged seeds or an earlier look decided: {rows})"
    return f"{text}."


def _heads(metrics: Sequence[Metric], shown: Sequence[Metric]) -> str:
    """The heads of the columns of these metrics; `Δ` if no other metric is shown."""
    if metrics == shown:
        return "Δ"
    return ", ".join(f"Δ{metric.title}" for metric in metrics)


def _earlier_verdicts(table: Table) -> dict[str, None]:
    """Labels of the rows that keep the verdict of an earlier look: p is too large at this look."""
    labels: dict[str, None] = {}
    for row in table.rows:
        for metric in table.judged_metrics:
            verdict = row.verdicts.get(metric.name)
            if verdict is None or verdict.p_adjusted is None:
                continue
            if verdict.is_different and verdict.p_adjusted >= LEVEL:
                labels[row.label] = None
    return labels


def _verdict_legend(table: Table, form: Form) -> Iterator[str]:
    """Yield each verdict with its rows, `worse: A h=1, B d_k=16`, if no column shows them."""
    if not form.shows("verdict"):
        yield from _grouped_labels(partial(_verdict_text, table), table)


def _note_legend(table: Table, form: Form) -> Iterator[str]:
    """Yield each note with its rows, such as `pending: A h=1, B d_k=16`."""
    yield from _grouped_labels(lambda row: row.note, table)


def _grouped_labels(text: Callable[[TableRow], str], table: Table) -> Iterator[str]:
    """Yield each text with the labels of its rows; rows with an empty text are left out."""
    labels: dict[str, list[str]] = {}
    for row in table.rows:
        labels.setdefault(text(row), []).append(row.label)
    for group, rows in labels.items():
        if group:
            yield f"{group}: {', '.join(rows)}."


def _most_seeds(table: Table) -> int:
    """Largest number of seeds that a row shares with base; 1 if no row has any."""
    return max((verdict.n for verdict in table.verdicts(table.main_metric) if verdict.n), default=1)


def _has_intervals(table: Table, metric: Metric) -> bool:
    return any(verdict.seed_test for verdict in table.verdicts(metric))
