"""Agreement with the paper: the order of the rows, and the side of base that each is on."""

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
    """Order of some rows in one metric, compared with the paper's.

    tau: Kendall's tau-b over base and the rows; None if one of the two tables has no order.
    low, high: 95 % interval of tau over the noise of this study; None without a measured noise.
        The paper has one run of each row, so its noise is not known.
    same_side: number of rows on the paper's side of base.
    sides: number of rows that the paper has on a side of base.
    """

    tau: float | None
    low: float | None
    high: float | None
    same_side: int
    sides: int


@dataclass(frozen=True)
class Agreement:
    """Order of one group's rows, by metric; `rows` is their number, base included."""

    group: str
    rows: int
    orders: dict[str, Order]


def paper_metrics(paper: PaperTable | None) -> list[str]:
    """Names of the metrics in the paper's table of a task, if there is one."""
    if paper is None:
        return []
    return list(dict.fromkeys(itertools.chain.from_iterable(row.scores for row in paper.rows)))


def agreements(table: Table) -> list[Agreement]:
    """Agreement of each group with rows of the paper, and of all these groups together (`all`)."""
    base, rows = table.families[0]
    setup = table.experiment.setup
    if setup is None or base.recipe.paper is None:
        return []
    names = paper_metrics(setup.paper)[::-1]  # the main metric first
    shared: list[TableRow] = []
    groups: dict[str, list[TableRow]] = {}
    for row in rows:
        if row.recipe.paper and all(row.deltas[name].mean is not None for name in names):
            shared.append(row)
            groups.setdefault(row.row.group, []).append(row)
    if len(groups) > 1:  # with a single group, `all` would only repeat it
        groups["all"] = shared
    found = []
    for group, of_group in groups.items():
        orders = {}
        for name in names:
            orders[name] = _order(table.experiment.metrics[name], base, of_group)
        found.append(Agreement(group, 1 + len(of_group), orders))
    return found


def _order(metric: Metric, base: TableRow, rows: Sequence[TableRow]) -> Order:
    ours, theirs, errors = [0.0], [0.0], []
    same_side = sides = 0
    for row in rows:
        difference, in_paper = row.deltas[metric.name].mean, _in_paper(metric, base, row)
        assert difference is not None
        ours.append(difference)
        theirs.append(in_paper)
        sides += in_paper != 0
        same_side += difference * in_paper > 0
        if (test := row.verdicts[metric.name].seed_test) is not None:
            errors.append(test.error)
    tau = kendall_tau_b(ours, theirs)  # with ties: BLEU has one digit in the paper
    low = high = None
    if tau is not None and len(errors) == len(rows):
        low, high = _interval(ours, errors, theirs)
    return Order(tau, low, high, same_side, sides)


def _in_paper(metric: Metric, base: TableRow, row: TableRow) -> float:
    """Difference of the paper's row from the paper's base, on the scale of the metric."""
    paper, of_base = row.recipe.paper, base.recipe.paper
    assert paper is not None
    assert of_base is not None
    return metric.transform(paper.scores[metric.name]) - metric.transform(
        of_base.scores[metric.name]
    )


def _interval(
    ours: Sequence[float], errors: Sequence[float], theirs: Sequence[float]
) -> tuple[float, float]:
    """95 % interval of tau: its quantiles over normal noise of the scores.

    Args:
        ours: differences from base, base first.
        errors: standard error of each difference but base's. A half of its square is the row's,
            and the other base's.
        theirs: the paper's differences, base first.
    """
    import numpy as np

    draw = np.random.default_rng(0)  # so that a table prints the same interval each time
    of_rows = np.asarray(errors) / np.sqrt(2)
    scale = np.array([of_rows.mean(), *of_rows])
    taus = []
    for scores in np.asarray(ours) + scale * draw.standard_normal((_DRAWS, len(ours))):
        taus.append(kendall_tau_b(scores.tolist(), theirs))
    low, high = np.quantile(np.asarray(taus, float), [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)


def contradictions(table: Table) -> list[tuple[TableRow, Metric]]:
    """Rows with a verdict on the other side of base than in the paper, with its metric."""
    base, rows = table.families[0]
    found = []
    for metric in table.judged:
        for row in rows:
            paper = row.recipe.paper
            if paper is None or metric.name not in paper.scores or base.recipe.paper is None:
                continue
            verdict, in_paper = row.verdicts[metric.name], _in_paper(metric, base, row)
            # By its word: a row that is worse by its divergence has no difference.
            is_other = in_paper != 0 and metric.is_better(in_paper) != (verdict.word == "better")
            if verdict.is_different and is_other:
                found.append((row, metric))
    return found


def agreement_lines(table: Table) -> Iterator[str]:
    """Yield the legend: the agreement by group, the contradictions, and a warning."""
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
    against = []
    for row, metric in contradictions(table):
        word = row.verdicts[metric.name].word
        against.append(f"{row.label} ({word} by {metric.title} here)")
    if not against:
        return "No row is beyond the noise on the other side of base than in the paper."
    return f"Beyond the noise on the other side of base than in the paper: {', '.join(against)}."


def agreements_json(table: Table) -> list[dict[str, Any]]:
    """The agreement for scripts."""
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
