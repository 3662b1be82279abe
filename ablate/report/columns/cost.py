"""Parameters, the choices of `match` and `tune`, and the cost of training."""

from __future__ import annotations

import math

from ablate.analysis.scores import mean_and_std
from ablate.analysis.table import Table, TableRow
from ablate.formatting import duration, millions, number, scaled
from ablate.report.columns.form import Form, Section
from ablate.report.layout import REQUESTED, Column


def _parameter_columns(table: Table, form: Form) -> list[Column]:
    cells = tuple(millions(row.params) for row in table.rows)
    return [Column("params\n(10^6)", True, cells, latex="params\n$\\times10^6$")]


def _match_columns(table: Table, form: Form) -> list[Column]:
    """The fields that `match` chose, and the FLOPs of each training beside the parameters."""
    matched = [row.row.matched for row in table.rows]
    if not any(matched):
        return []
    chosen = tuple(f"{one.field}={one.value}" if one else "" for one in matched)
    flops = Column("FLOPs", True, tuple(scaled(row.cost.flops, "").strip() for row in table.rows))
    return [*([] if form.with_cost else [flops]), Column("matched", False, chosen, folds=True)]


def _match_legend(table: Table, form: Form) -> list[str]:
    rules = dict.fromkeys(
        (one.cost, one.within, one.tokens if one.cost == "flops" else None)
        for row in table.rows
        if (one := row.row.matched) is not None
    )
    names = {"params": "parameters", "flops": "training FLOPs"}
    # The column FLOPs counts the corpus's real lengths, with which the difference may be larger
    # than the tolerance.
    return [
        f"matched: the field that brings the row's {names[cost]} within {100 * within:g} % of "
        f"base's" + ("." if tokens is None else f", counted for sentences of {tokens} tokens.")
        for cost, within, tokens in rules
    ]


def _tuning_columns(table: Table, form: Form) -> list[Column]:
    """The tuned values, and the sensitivity of the loss to them."""
    tunings = [row.row.tuning for row in table.rows]
    if not any(tunings):
        return []
    chosen = tuple(one.text if one else "" for one in tunings)
    sensitivity = tuple(number(one.sensitivity if one else None, 2) for one in tunings)
    return [
        Column("tuned", False, chosen, folds=True),
        Column("sensitivity\n(nats)", True, sensitivity),
    ]


def _tuning_legend(table: Table, form: Form) -> list[str]:
    tune = table.study.tune
    if tune is None or not any(row.row.tuning for row in table.rows):
        return []
    seeds, count = ", ".join(map(str, tune.seeds)), math.prod(map(len, tune.grid.values()))
    seeds = f"seed{'s' if len(tune.seeds) > 1 else ''} {seeds}"
    return [
        f"tuned: the best of {count} values by dev loss, each row alike, with {seeds} and "
        f"{100 * tune.share:g} % of the steps; edge: the smallest or largest of the grid, so that "
        "a better value may be outside.",
        "sensitivity: mean dev loss over the grid, at most ln V each, less that of the best value "
        "(arXiv 2309.14322).",
    ]


def _cost_columns(table: Table, form: Form) -> list[Column]:
    if not form.with_cost:
        return []
    rows, seeds = table.rows, len(table.study.seeds)
    return [
        Column(head, True, cells, priority=REQUESTED)
        for head, cells in (
            ("tokens/s", tuple(mean_and_std(row.cost.tokens_per_second, 0, seeds) for row in rows)),
            ("time", tuple(_time(row) for row in rows)),
            ("FLOPs", tuple(scaled(row.cost.flops, "").strip() for row in rows)),
        )
    ]


def _time(row: TableRow) -> str:
    return "" if row.cost.seconds.mean is None else duration(row.cost.seconds.mean)


def _cost_legend(table: Table, form: Form) -> list[str]:
    if not form.with_cost:
        return []
    machines = sorted({machine for row in table.rows for machine in row.cost.machines})
    lines = [
        "tokens/s, time: mean over seeds of one training with its evaluations. FLOPs: of one "
        "training, closed form."
    ]
    if machines:
        lines.append(f"Trained on: {'; '.join(machines)}.")
    if len(machines) > 1:
        lines.append(
            "WARNING: these runs were trained in different places: their times cannot be compared."
        )
    return lines


PARAMETERS = Section(_parameter_columns)
MATCHED = Section(_match_columns, _match_legend)
TUNED = Section(_tuning_columns, _tuning_legend)
COST = Section(_cost_columns, _cost_legend)
