"""Agreement with the paper: rank correlation of the rows' scores with the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ablate.analysis.table import Table, TableRow, paper_metrics
from ablate.stats.significance import kendall_tau_b

WARNING = (
    "Small corpora and short trainings reverse effects of size and of regularization: a larger "
    "model may lose, and dropout may hurt, where in the paper they gain."
)


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b between this study's scores and the paper's, over base and the rows of one
    group.

    rows: number of rows compared, base included.
    tau: by metric; None below two rows, or if one side has no order.
    """

    group: str
    rows: int
    tau: dict[str, float | None]


def agreements(table: Table) -> list[Agreement]:
    """Agreement of each group with rows of the paper, and of all these groups together (`all`)."""
    base = table.rows[0]
    if base.paper is None:
        return []
    main = table.study.task.default_metrics[0]
    others = [row for row in table.rows[1:] if row.row.base == base.row.label]
    shared = [row for row in others if row.paper and row.scores[main].mean is not None]
    if base.scores[main].mean is None or not shared:
        return []
    groups = list(dict.fromkeys(row.row.group for row in shared))
    each = [
        _agreement(table, group, [base, *(row for row in shared if row.row.group == group)])
        for group in groups
    ]
    # With a single group, `all` would only repeat it.
    return each if len(groups) == 1 else [*each, _agreement(table, "all", [base, *shared])]


def _agreement(table: Table, group: str, rows: list[TableRow]) -> Agreement:
    # tau-b, which allows for ties: BLEU has one digit in the paper.
    pairs = [(row, row.paper) for row in rows if row.paper]
    tau = {
        name: kendall_tau_b(
            [row.scores[name].mean or 0.0 for row, _ in pairs],
            [paper.scores[name] for _, paper in pairs],
        )
        for name in reversed(paper_metrics(table))  # the main metric first
    }
    return Agreement(group, len(rows), tau)


def agreement_lines(table: Table) -> list[str]:
    """Legend lines: the agreement, and a warning about small studies."""
    groups = agreements(table)
    if not groups:
        return [
            "No row with scores has a counterpart in the paper, so there is no order to compare."
        ]
    titles = " / ".join(table.study.task.metrics[name].title for name in groups[0].tau)
    parts = [
        f"{_name(one)} {' / '.join(_tau(tau) for tau in one.tau.values())} (k = {one.rows})"
        for one in groups
    ]
    how = (
        f"Order of rows against the paper's, Kendall's tau-b of {titles} (1 equal, -1 reversed), "
        f"base included: "
    )
    return [how + "; ".join(parts) + ".", WARNING]


def agreements_json(table: Table) -> list[dict[str, Any]]:
    """The agreement for scripts."""
    return [
        {
            "group": one.group,
            "rows": one.rows,
            **{f"tau_{name}": tau for name, tau in one.tau.items()},
        }
        for one in agreements(table)
    ]


def _name(one: Agreement) -> str:
    return "all" if one.group == "all" else f"({one.group})"


def _tau(tau: float | None) -> str:
    return "no order" if tau is None else f"{tau:+.2f}"
