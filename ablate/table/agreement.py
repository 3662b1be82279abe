"""Agreement with the paper: the order of the rows, and the rows that are better than base."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.paper import PaperTable
from ablate.stats.metrics import Metric
from ablate.stats.significance import LEVEL, kendall_tau_b
from ablate.table.table import Table, TableRow

WARNING = (
    "Small corpora and short trainings reverse effects of size and of regularization: a larger "
    "model may lose, and dropout may hurt, where in the paper they gain."
)
_DRAWS = 2000


@dataclass(frozen=True)
class Order:
    """Order of rows in one metric, compared with their order in the paper.

    tau: Kendall's tau-b over base and the rows; None if all scores of one table are equal.
    low, high: 95 % interval of tau, given the noise of this study; None if this noise is unknown.
        The noise of the paper is unknown, because the paper has one run of each row.
    same_side: number of rows whose difference from base has the same sign here and in the paper.
    sides: number of rows whose difference from base is not 0 in the paper.
    """

    tau: float | None
    low: float | None
    high: float | None
    same_side: int
    sides: int


@dataclass(frozen=True)
class Agreement:
    """Orders of a group of rows, by metric; `rows` is their number, with base."""

    group: str
    rows: int
    orders: dict[str, Order]


def paper_metrics(paper: PaperTable | None) -> list[str]:
    """Names of the metrics in a table of the paper; empty without a table."""
    if paper is None:
        return []
    return list(dict.fromkeys(itertools.chain.from_iterable(row.scores for row in paper.rows)))


def agreements(table: Table) -> list[Agreement]:
    """Agreement of each group with rows that the paper has, and of all these groups (`all`)."""
    base, rows = table.families[0]
    paper = table.experiment.setup.paper
    if paper is None or base.recipe.paper is None:
        return []
    names = paper_metrics(paper)[::-1]  # the main metric first
    shared: list[TableRow] = []
    groups: dict[str, list[TableRow]] = {}
    for row in rows:
        if row.recipe.paper and all(row.deltas[name].mean is not None for name in names):
            shared.append(row)
            groups.setdefault(row.group, []).append(row)
    if len(groups) > 1:  # `all` would repeat a single group
        groups["all"] = shared
    results = []
    for group, group_rows in groups.items():
        orders = {}
        for name in names:
            orders[name] = _order(table.experiment.metrics[name], base, group_rows)
        results.append(Agreement(group, 1 + len(group_rows), orders))
    return results


def _order(metric: Metric, base: TableRow, rows: Sequence[TableRow]) -> Order:
    ours = [0.0]  # base
    theirs = [0.0]
    errors = []
    same_side = sides = 0
    for row in rows:
        difference = row.deltas[metric.name].mean
        paper_difference = _paper_difference(metric, base, row)
        assert difference is not None
        ours.append(difference)
        theirs.append(paper_difference)
        sides += paper_difference != 0
        same_side += difference * paper_difference > 0
        if (test := row.verdicts[metric.name].seed_test) is not None:
            errors.append(test.error)
    tau = kendall_tau_b(ours, theirs)  # has ties, because the paper rounds BLEU to one digit
    low = high = None
    if tau is not None and len(errors) == len(rows):
        low, high = _interval(ours, errors, theirs)
    return Order(tau, low, high, same_side, sides)


def _paper_difference(metric: Metric, base: TableRow, row: TableRow) -> float:
    """Difference of the paper's row from the paper's base, on the scale of the metric."""
    paper_row = row.recipe.paper
    paper_base = base.recipe.paper
    assert paper_row is not None
    assert paper_base is not None
    score = metric.transform(paper_row.scores[metric.name])
    return score - metric.transform(paper_base.scores[metric.name])


def _interval(
    ours: Sequence[float], errors: Sequence[float], theirs: Sequence[float]
) -> tuple[float, float]:
    """95 % interval of tau: its quantiles over simulated normal noise of the scores.

    Args:
        ours: differences from base, base first.
        errors: standard error of each difference, without base. The row and base each have half of
            its square.
        theirs: the paper's differences, base first.
    """
    import numpy as np

    generator = np.random.default_rng(0)  # a table prints the same interval each time
    row_errors = np.asarray(errors) / np.sqrt(2)
    scale = np.array([row_errors.mean(), *row_errors])
    taus = []
    for scores in np.asarray(ours) + scale * generator.standard_normal((_DRAWS, len(ours))):
        taus.append(kendall_tau_b(scores.tolist(), theirs))
    low, high = np.quantile(np.asarray(taus, float), [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)


def contradictions(table: Table) -> list[tuple[TableRow, Metric]]:
    """Rows that are better than base here and worse in the paper, or the reverse, with the metric.
    A difference without a verdict is no contradiction.
    """
    base, rows = table.families[0]
    contradicting = []
    for metric in table.judged_metrics:
        for row in rows:
            paper = row.recipe.paper
            if paper is None or metric.name not in paper.scores or base.recipe.paper is None:
                continue
            verdict = row.verdicts[metric.name]
            paper_difference = _paper_difference(metric, base, row)
            if not verdict.is_different or paper_difference == 0:
                continue
            # The word of the verdict, because a row that is worse by divergence has no difference.
            if verdict.word != ("better" if metric.is_better(paper_difference) else "worse"):
                contradicting.append((row, metric))
    return contradicting


def agreement_lines(table: Table) -> Iterator[str]:
    """Yield the lines of the legend: the agreement by group, the contradictions, and a warning."""
    groups = agreements(table)
    if not groups:
        yield "No row with scores has a counterpart in the paper, so there is no order to compare."
        return
    yield (
        "Order of rows against the paper's: Kendall's tau-b with base (1 equal, -1 reversed), its "
        "95 % interval over the noise of this study, and the number of rows on the paper's side "
        "of base."
    )
    for agreement in groups:
        name = "all" if agreement.group == "all" else f"({agreement.group})"
        parts = []
        for metric, order in agreement.orders.items():
            parts.append(f"{table.experiment.metrics[metric].title} {_text(order)}")
        yield f"{name}: {'; '.join(parts)}."
    yield _contradiction_line(table)
    yield WARNING


def _text(order: Order) -> str:
    """`+0.80 [+0.40, +1.00], 3 of 4`."""
    text = "no order"
    if order.tau is not None:
        text = f"{order.tau:+.2f}"
    if order.low is not None and order.high is not None:
        text += f" [{order.low:+.2f}, {order.high:+.2f}]"
    return f"{text}, {order.same_side} of {order.sides}"


def _contradiction_line(table: Table) -> str:
    contradicting = []
    for row, metric in contradictions(table):
        word = row.verdicts[metric.name].word
        contradicting.append(f"{row.label} ({word} by {metric.title} here)")
    if not contradicting:
        return "No verdict contradicts the paper."
    return f"These verdicts contradict the paper: {', '.join(contradicting)}."


def agreements_json(table: Table) -> list[dict[str, Any]]:
    """The agreement as JSON values."""
    content = []
    for agreement in agreements(table):
        line: dict[str, Any] = {"group": agreement.group, "rows": agreement.rows}
        for name, order in agreement.orders.items():
            line[f"tau_{name}"] = order.tau
            line[f"tau_{name}_low"] = order.low
            line[f"tau_{name}_high"] = order.high
            line[f"same_side_{name}"] = order.same_side
            line[f"sides_{name}"] = order.sides
        content.append(line)
    return content
