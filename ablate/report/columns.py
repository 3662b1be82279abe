"""Columns of numbers: scores, differences from base with their verdict, cost, and the paper's; and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ablate.config.metrics import Metric
from ablate.formatting import duration, millions, number, plural, scaled, signed
from ablate.report.scores import spread
from ablate.report.table import Table, TableRow, paper_metrics
from ablate.stats.bootstrap import RESAMPLES
from ablate.stats.tests import LEVEL
from ablate.stats.verdict import Verdict

Mark = Callable[[str], str]  # how a best value is marked


@dataclass(frozen=True)
class Column:
    """A column: its head, whether it is a number, its cell for each row, and whether a cell may take several lines."""

    head: str
    numeric: bool
    cells: tuple[str, ...]
    folds: bool = False


def scores(table: Table, mark: Mark) -> list[Column]:
    """A column a metric, the best mean marked."""
    return [_scores(table, metric, mark) for metric in table.metrics]


def _scores(table: Table, metric: Metric, mark: Mark) -> Column:
    best, seeds = table.best(metric.name), len(table.study.seeds)
    cells = []
    for row in table.rows:
        found = row.scores[metric.name]
        text = spread(found, metric.digits, seeds)
        is_best = best is not None and found.n == seeds
        cells.append(
            mark(text) if is_best and number(found.mean, metric.digits) == number(best, metric.digits) else text
        )
    return Column(f"{metric.title}\n({metric.side})", True, tuple(cells))


def against_base(table: Table) -> list[Column]:
    """Differences from base with their intervals, and what the test set says of them."""
    columns = [_difference(table, metric) for metric in (table.perplexity, table.main)]
    columns.append(_column(table, "p\n(test set)", table.main, _p_test, numeric=True))
    return [column for column in columns if any(column.cells)]


def verdict(table: Table) -> list[Column]:
    """The verdict on each row, where some row has more than one seed."""
    return [_column(table, "verdict", table.main, _word, numeric=False)] if _has_verdicts(table) else []


def verdict_lines(table: Table) -> list[str]:
    """The same as lines, such as `worse: A h=1, B d_k=16`."""
    for column in verdict(table):
        told = [(cell, row.row.label) for cell, row in zip(column.cells, table.rows, strict=True) if cell]
        words = dict.fromkeys(cell for cell, _ in told)
        return [f"{word}: {', '.join(label for cell, label in told if cell == word)}." for word in words]
    return []


def _difference(table: Table, metric: Metric) -> Column:
    several = _has_verdicts(table)
    head = f"Δ{metric.title}\n{'[95 %]' if several else '(n = 1)'}"
    return _column(table, head, metric, lambda verdict: _interval(verdict, len(table.study.seeds)), numeric=True)


def _interval(verdict: Verdict, seeds: int) -> str:
    """`-4.5 [-9.1, +0.1]`, with how many seeds where not all are in."""
    digits, text = verdict.metric.digits, signed(verdict.mean, verdict.metric.digits)
    if verdict.seed_test:
        text += f" [{signed(verdict.seed_test.low, digits)}, {signed(verdict.seed_test.high, digits)}]"
    return f"{text} ({verdict.n}/{seeds})" if text and verdict.n < seeds else text


def _p_test(verdict: Verdict) -> str:
    if verdict.p_bootstrap is None:
        return ""
    return "<0.001" if verdict.p_bootstrap < 0.001 else f"{verdict.p_bootstrap:.3f}"


def _word(verdict: Verdict) -> str:
    """`within noise (6.3)`: with the least difference that would have been told."""
    told = verdict.word == "within noise" and verdict.minimum_detectable is not None and not verdict.is_test_set_noise
    return f"{verdict.word} ({verdict.minimum_detectable_text})" if told else verdict.word


def _column(table: Table, head: str, metric: Metric, cell: Callable[[Verdict], str], *, numeric: bool) -> Column:
    """A cell for each row from its verdict; base has none."""
    found = [row.verdicts.get(metric.name) for row in table.rows]
    return Column(head, numeric, tuple(cell(verdict) if verdict else "" for verdict in found))


def of_rows(table: Table, metric: Metric) -> list[Verdict]:
    """The verdicts on every row but base."""
    return [row.verdicts[metric.name] for row in table.rows if metric.name in row.verdicts]


def _has_verdicts(table: Table) -> bool:
    return any(verdict.seed_test for verdict in of_rows(table, table.main))


def meaning(table: Table, in_full: bool) -> list[str]:
    """Lines that say what the columns against base are."""
    lines, main, rows = [], table.main.title, of_rows(table, table.main)
    seeds = len(table.study.seeds)
    if any(verdict.n for verdict in rows) and in_full:
        how = "mean difference from base, paired by seed, with its 95 % interval over seeds (t)"
        lines.append(f"Δ: {how if _has_verdicts(table) else 'difference from base with one seed'}.")
    if in_full and any(verdict.bootstrap for verdict in rows):
        lines.append(
            f"p (test set): paired bootstrap of Δ{main} over the test sentences (sacreBLEU's, {RESAMPLES} resamples), "
            "Holm-corrected over the rows. This covers the sampling of test sentences, not the variance over seeds."
        )
    if _has_verdicts(table):
        tested = sum(verdict.seed_test is not None for verdict in rows)
        lines.append(
            f"verdict: by {main}. worse, better: beyond the noise of {seeds} seeds and of the test sentences "
            f"(p < {LEVEL:g} each, Holm-corrected over {plural(tested, 'row')}). within noise (d): not significant; "
            "d is the smallest detectable difference."
        )
    elif seeds == 1 and any(verdict.n for verdict in rows):
        lines.append("One seed (n = 1): the variance over seeds is unknown, so every row is undecided.")
    return lines


def parameters(table: Table) -> Column:
    """Trained parameters."""
    return Column("params\n(10^6)", True, tuple(millions(row.params) for row in table.rows))


def costs(table: Table) -> list[Column]:
    """What a training took."""
    rows, seeds = table.rows, len(table.study.seeds)
    return [
        Column("tokens/s", True, tuple(spread(row.cost.tokens_per_second, 0, seeds) for row in rows)),
        Column("time", True, tuple(_time(row) for row in rows)),
        Column("FLOPs", True, tuple(scaled(row.cost.flops, "").strip() for row in rows)),
    ]


def _time(row: TableRow) -> str:
    return "" if row.cost.seconds.mean is None else duration(row.cost.seconds.mean)


def costs_meaning(table: Table) -> list[str]:
    """Lines that say what the columns of cost are."""
    places = sorted({place for row in table.rows for place in row.cost.machines})
    lines = [
        "tokens/s, time: mean over seeds of one training with its evaluations. FLOPs: of one training, closed form."
    ]
    if places:
        lines.append(f"Trained on: {'; '.join(places)}.")
    if len(places) > 1:
        lines.append("WARNING: these runs were trained in different places: their times cannot be compared.")
    return lines


def paper(table: Table) -> list[Column]:
    """The paper's numbers for the same changes."""
    rows = [row.paper for row in table.rows]
    metrics = [table.study.task.metrics[name] for name in paper_metrics(table)]
    return [
        *(
            Column(
                f"paper\n{metric.title}",
                True,
                tuple(number(row.scores.get(metric.name) if row else None, metric.digits) for row in rows),
            )
            for metric in metrics
        ),
        Column("paper\nparams", True, tuple(number(row.params_millions if row else None, 0) for row in rows)),
    ]
