"""Parameters, the choices that match and trials make, and the cost of training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ablate.analysis.scores import mean_and_std
from ablate.analysis.table import Table, TableRow
from ablate.config.cost import idle_parameters
from ablate.formatting import duration, millions, number, scaled
from ablate.study.choice import HEAD, KEY
from ablate.table.columns.column import Column, Form
from ablate.table.layout import CHOSEN, REQUESTED, Warned


def cost_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the columns of parameters, steps and cost."""
    yield Column(
        "params",
        "params\n(10^6)",
        lambda row: row.params,
        lambda row: millions(row.params),
        latex="params\n$\\times10^6$",
    )
    if any(row.params != _active_params(row) for row in table.rows):
        yield Column(
            "active_params",
            "active\n(10^6)",
            _active_params,
            lambda row: millions(_active_params(row)),
            lambda form: ["active: parameters that one token meets, without the other experts."],
            latex="active\n$\\times10^6$",
        )
    yield Column("steps", value=lambda row: row.steps)
    if any(row.row.matched for row in table.rows):
        yield from _match_columns(table, form)
    if any(row.row.own_choice for row in table.rows):
        yield from _choice_columns(table)
    parts: dict[str, tuple[str, ...]] = {}
    if form.timed:
        parts |= {"seconds": ("seconds", "mean")}
        parts |= {"tokens_per_second": ("tokens_per_second", "mean")}
    parts["flops"] = ("flops",)
    yield Column(
        "cost",
        value=lambda row: row.cost.as_json(form.timed),
        legend=partial(_cost_legend, table),
        parts=parts,
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
        lambda row: row.row.matched and row.row.matched.as_json(),
        _matched,
        partial(_match_legend, table),
        CHOSEN,
        parts={},
        numeric=False,
        folds=True,
    )


def _matched(row: TableRow) -> str:
    if row.row.matched is None:
        return ""
    return f"{row.row.matched.field}={row.row.matched.value}"


def _flops(row: TableRow) -> str:
    return scaled(row.cost.flops, "").strip()


def _match_legend(table: Table, form: Form) -> Iterator[str]:
    # The column FLOPs counts the corpus's real lengths, with which the difference may be larger
    # than the tolerance.
    names = {
        "params": "parameters",
        "active_params": "active parameters",
        "flops": "training FLOPs",
    }
    lines: dict[str, None] = {}
    for row in table.rows:
        match = row.row.matched
        if match is None:
            continue
        line = (
            f"matched: the field that brings the row's {names[match.cost]} within "
            f"{100 * match.within:g} % of base's"
        )
        if match.cost == "flops" and match.tokens is not None:
            line += f", counted for sentences of {match.tokens} tokens"
        lines[f"{line}."] = None
    yield from lines


def _choice_columns(table: Table) -> Iterator[Column]:
    """Yield the chosen values, and the sensitivity of the loss to them."""
    yield Column(
        KEY,
        HEAD,
        lambda row: row.row.own_choice and row.row.own_choice.as_json(),
        _chosen,
        partial(_choice_legend, table),
        CHOSEN,
        parts={},
        numeric=False,
        folds=True,
    )
    if any(row.row.own_choice for row in table.rows):
        yield Column(
            "",
            "sensitivity\n(nats)",
            text=_sensitivity,
            legend=lambda form: [
                "sensitivity: mean dev loss over the grid, at most ln V each, less that of the "
                "best value (arXiv 2309.14322)."
            ],
        )


def _chosen(row: TableRow) -> str:
    return row.row.own_choice.text if row.row.own_choice else ""


def _sensitivity(row: TableRow) -> str:
    return number(row.row.own_choice.sensitivity if row.row.own_choice else None, 2)


def _choice_legend(table: Table, form: Form) -> Iterator[str]:
    lines: dict[str, None] = {}
    for row in table.rows:
        if row.row.own_choice:
            lines[row.row.own_choice.legend] = None
    yield from lines


def _time(row: TableRow) -> str:
    if row.cost.seconds.mean is None:
        return ""
    return duration(row.cost.seconds.mean)


def _cost_legend(table: Table, form: Form) -> Iterator[str]:
    if not form.with_cost:
        return
    if form.shows("FLOPs"):
        yield "FLOPs: of one training, closed form."
    timed = [head for head in ("tokens/s", "time") if form.shows(head)]
    if not timed:
        return
    yield f"{', '.join(timed)}: mean over seeds of one training with its evaluations."
    machines = set[str]()
    for row in table.rows:
        machines.update(row.cost.machines)
    if machines:
        yield f"Trained on: {'; '.join(sorted(machines))}."
    if len(machines) > 1:
        yield Warned(
            "WARNING: these runs were trained in different places: their times cannot be compared."
        )
