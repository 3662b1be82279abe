"""Whether a study puts its rows into the order in which the paper has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ablate.report.table import Table, TableRow
from ablate.stats.tests import kendall_tau_b

WARNING = (
    "Small corpora and short trainings reverse effects of size and of regularisation: a larger model may lose, and "
    "dropout may hurt, where in the paper they gain."
)


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b between our scores and the paper's over the rows of one group, base among them.

    rows: how many are compared, base counted; tau is None below two, or where one side has no order.
    """

    group: str
    rows: int
    bleu: float | None
    ppl: float | None


def agreements(table: Table) -> list[Agreement]:
    """For each group with a row that the paper has too, and over all of them (`all`)."""
    found = [row for row in table.rows[1:] if row.paper and row.bleu.mean is not None]
    base = table.rows[0]
    if base.bleu.mean is None or base.paper is None or not found:
        return []
    groups = list(dict.fromkeys(row.row.group for row in found))
    each = [_agreement(group, [base, *(row for row in found if row.row.group == group)]) for group in groups]
    return each if len(groups) == 1 else [*each, _agreement("all", [base, *found])]


def _agreement(group: str, rows: list[TableRow]) -> Agreement:
    pairs = [(row, row.paper) for row in rows if row.paper]
    bleu = kendall_tau_b([row.bleu.mean or 0.0 for row, _ in pairs], [paper.bleu for _, paper in pairs])
    ppl = kendall_tau_b([row.ppl.mean or 0.0 for row, _ in pairs], [paper.ppl for _, paper in pairs])
    return Agreement(group, len(rows), bleu, ppl)


def agreement_lines(table: Table) -> list[str]:
    """For people: a line of taus, and the warning."""
    found = agreements(table)
    if not found:
        return ["No row of this study with scores has a row of the paper beside it: no order to compare."]
    parts = [f"{_named(one)} {_tau(one.bleu)} / {_tau(one.ppl)} (k = {one.rows})" for one in found]
    how = "Order of rows against the paper's, Kendall's tau-b of BLEU / PPL (1 the same, -1 reversed), base included: "
    return [how + "; ".join(parts) + ".", WARNING]


def agreements_json(table: Table) -> list[dict[str, Any]]:
    """For scripts."""
    return [
        {"group": one.group, "rows": one.rows, "tau_bleu": one.bleu, "tau_ppl": one.ppl} for one in agreements(table)
    ]


def _named(one: Agreement) -> str:
    return "all" if one.group == "all" else f"({one.group})"


def _tau(tau: float | None) -> str:
    return "no order" if tau is None else f"{tau:+.2f}"
