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
    base, rows, _ = table.families[0]
    if base.paper is None:
        return []
    main = table.study.task.default_metrics[0]
    if base.scores[main].mean is None:
        return []
    shared: list[TableRow] = []
    groups: dict[str, list[TableRow]] = {}
    for row in rows:
        if row.paper and row.scores[main].mean is not None:
            shared.append(row)
            groups.setdefault(row.row.group, []).append(row)
    if len(groups) > 1:  # with a single group, `all` would only repeat it
        groups["all"] = shared
    return [_agreement(table, group, [base, *of_group]) for group, of_group in groups.items()]


def _agreement(table: Table, group: str, rows: list[TableRow]) -> Agreement:
    tau = {}
    for name in reversed(paper_metrics(table)):  # the main metric first
        ours, theirs = [], []
        for row in rows:
            if row.paper:
                ours.append(row.scores[name].mean or 0.0)
                theirs.append(row.paper.scores[name])
        tau[name] = kendall_tau_b(ours, theirs)  # with ties: BLEU has one digit in the paper
    return Agreement(group, len(rows), tau)


def agreement_lines(table: Table) -> list[str]:
    """Legend lines: the agreement, and a warning about small studies."""
    groups = agreements(table)
    if not groups:
        return [
            "No row with scores has a counterpart in the paper, so there is no order to compare."
        ]
    titles = " / ".join(table.study.task.metrics[name].title for name in groups[0].tau)
    parts = []
    for agreement in groups:
        taus = []
        name = "all" if agreement.group == "all" else f"({agreement.group})"
        for tau in agreement.tau.values():
            taus.append("no order" if tau is None else f"{tau:+.2f}")
        parts.append(f"{name} {' / '.join(taus)} (k = {agreement.rows})")
    how = (
        f"Order of rows against the paper's, Kendall's tau-b of {titles} (1 equal, -1 reversed), "
        f"base included: "
    )
    return [how + "; ".join(parts) + ".", WARNING]


def agreements_json(table: Table) -> list[dict[str, Any]]:
    """The agreement for scripts."""
    content = []
    for agreement in agreements(table):
        taus = {f"tau_{name}": tau for name, tau in agreement.tau.items()}
        content.append({"group": agreement.group, "rows": agreement.rows, **taus})
    return content
