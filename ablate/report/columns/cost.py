"""Parameters, the choices of `match` and `tune`, and the cost of training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ablate.analysis.scores import mean_and_std
from ablate.analysis.table import Table, TableRow
from ablate.config.cost import idle_parameters
from ablate.formatting import duration, millions, number, scaled
from ablate.report.columns.column import Column, Form
from ablate.report.layout import REQUESTED


def cost_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the columns of parameters, steps and cost."""
    rows = [row.row for row in table.rows]
    yield Column(
        "params",
        "params\n(10^6)",
        lambda row: row.params,
        lambda row: millions(row.params),
        latex="params\n$\\times10^6$",
    )
    if any(idle_parameters(row.config) for row in rows):
        yield Column(
            "active_params",
            "active\n(10^6)",
            _active_params,
            lambda row: millions(_active_params(row)),
            lambda form: ["active: parameters that one token meets, without the other experts."],
            latex="active\n$\\times10^6$",
        )
    yield Column("steps", value=lambda row: row.steps)
    if any(row.matched for row in rows):
        yield from _match_columns(table, form)
    if any(row.tuning for row in rows):
        yield from _tuning_columns(table)
    parts: dict[str, tuple[str, ...]] = {}
    if form.timed:
        parts = {name: (name, "mean") for name in ("seconds", "tokens_per_second")}
    yield Column(
        "cost",
        value=lambda row: row.cost.as_json(form.timed),
        legend=partial(_cost_legend, table),
        parts={**parts, "flops": ("flops",)},
    )
    if form.with_cost:
        seeds = len(table.study.seeds)
        for head, text in (
            ("tokens/s", lambda row: mean_and_std(row.cost.tokens_per_second, 0, seeds)),
            ("time", _time),
            ("FLOPs", _flops),
        ):
            yield Column("", head, text=text, priority=REQUESTED)


def _active_params(row: TableRow) -> int:
    return row.params - idle_parameters(row.row.config)


def _match_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the fields that `match` chose, and the FLOPs of each training beside the parameters."""
    if not form.with_cost:
        yield Column("", "FLOPs", text=_flops)
    yield Column(
        "matched",
        "matched",
        lambda row: row.row.matched.as_json() if row.row.matched else None,
        _matched,
        partial(_match_legend, table),
        parts={},
        numeric=False,
        folds=True,
    )


def _matched(row: TableRow) -> str:
    match = row.row.matched
    return f"{match.field}={match.value}" if match else ""


def _flops(row: TableRow) -> str:
    return scaled(row.cost.flops, "").strip()


def _match_legend(table: Table, form: Form) -> Iterator[str]:
    # The column FLOPs counts the corpus's real lengths, with which the difference may be larger
    # than the tolerance.
    matches = [row.row.matched for row in table.rows if row.row.matched]
    names = {"params": "parameters", "flops": "training FLOPs"}
    lines: dict[str, None] = {}
    for match in matches:
        line = (
            f"matched: the field that brings the row's {names[match.cost]} within "
            f"{100 * match.within:g} % of base's"
        )
        if match.cost == "flops" and match.tokens is not None:
            line += f", counted for sentences of {match.tokens} tokens"
        lines[f"{line}."] = None
    yield from lines


def _tuning_columns(table: Table) -> Iterator[Column]:
    """Yield the tuned values, and the sensitivity of the loss to them."""
    yield Column(
        "tuning",
        "tuned",
        lambda row: row.row.tuning.as_json() if row.row.tuning else None,
        lambda row: row.row.tuning.text if row.row.tuning else "",
        partial(_tuning_legend, table),
        parts={},
        numeric=False,
        folds=True,
    )
    if table.study.tune is not None and table.study.tune.grid:
        yield Column("", "sensitivity\n(nats)", text=_sensitivity)


def _sensitivity(row: TableRow) -> str:
    return number(row.row.tuning.sensitivity, 2) if row.row.tuning else ""


def _tuning_legend(table: Table, form: Form) -> Iterator[str]:
    tune, lines = table.study.tune, dict[str, None]()
    if tune is not None:
        for row in table.rows:
            lines |= dict.fromkeys(row.row.tuning.legend(tune) if row.row.tuning else ())
    yield from lines


def _time(row: TableRow) -> str:
    return "" if row.cost.seconds.mean is None else duration(row.cost.seconds.mean)


def _cost_legend(table: Table, form: Form) -> Iterator[str]:
    if not form.with_cost:
        return
    yield (
        "tokens/s, time: mean over seeds of one training with its evaluations. FLOPs: of one "
        "training, closed form."
    )
    machines = sorted({machine for row in table.rows for machine in row.cost.machines})
    if machines:
        yield f"Trained on: {'; '.join(machines)}."
    if len(machines) > 1:
        yield (
            "WARNING: these runs were trained in different places: their times cannot be compared."
        )
