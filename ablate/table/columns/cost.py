"""Columns of parameters, of settings that the program chose, and of the cost of training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ablate.formatting import duration, millions, number, scaled
from ablate.table.columns.column import Column, Form
from ablate.table.experiment import ChosenSettings
from ablate.table.layout import CHOSEN, REQUESTED, Warned
from ablate.table.scores import mean_and_std
from ablate.table.table import Table, TableRow


def cost_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the columns of parameters, steps and cost."""
    yield Column(
        "params",
        "params\n(10^6)",
        lambda row: row.recipe.params,
        lambda row: millions(row.recipe.params),
        latex="params\n$\\times10^6$",
    )
    if any(row.recipe.params != row.recipe.active_params for row in table.rows):
        yield Column(
            "active_params",
            "active\n(10^6)",
            lambda row: row.recipe.active_params,
            lambda row: millions(row.recipe.active_params),
            lambda form: ["active: parameters that one token meets, without the other experts."],
            latex="active\n$\\times10^6$",
        )
    yield Column("steps", value=lambda row: row.recipe.steps)
    if any(row.recipe.matched for row in table.rows):
        yield from _match_columns(table, form)
    if any(row.recipe.tuned for row in table.rows):
        yield from _tuning_columns(table)
    parts: dict[str, tuple[str, ...]] = {}
    if form.timed:
        parts |= {"seconds": ("seconds", "mean")}
        parts |= {"tokens_per_second": ("tokens_per_second", "mean")}
    parts["flops"] = ("flops",)
    yield Column(
        "cost",
        value=lambda row: row.recipe.cost.as_json(len(row.runs), form.timed),
        legend=partial(_cost_legend, table),
        parts=parts,
    )
    if form.with_cost:
        seeds = len(table.experiment.seeds)
        for head, text in (
            ("tokens/s", lambda row: mean_and_std(row.recipe.cost.tokens_per_second, 0, seeds)),
            ("time", _time),
            ("FLOPs", _flops),
        ):
            yield Column("", head, text=text, priority=REQUESTED)


def _match_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the settings that `match` chose, and the FLOPs of a training."""
    if not form.with_cost:
        yield Column("", "FLOPs", text=_flops)
    yield _choice_column("matched", "matched", lambda row: row.recipe.matched, table)


def _tuning_columns(table: Table) -> Iterator[Column]:
    """Yield the tuned values, and the sensitivity of the loss to them."""
    yield _choice_column("tuning", "tuned", lambda row: row.recipe.tuned, table)
    yield Column(
        "",
        "sensitivity\n(nats)",
        text=_sensitivity,
        legend=lambda form: [
            "sensitivity: mean dev loss over the grid minus the smallest dev loss; losses above "
            "ln V count as ln V (arXiv 2309.14322)."
        ],
    )


def _choice_column(
    key: str, head: str, get_choice: Callable[[TableRow], ChosenSettings | None], table: Table
) -> Column:
    """The settings that were chosen for each row."""
    choices = list(filter(None, map(get_choice, table.rows)))

    def content(row: TableRow) -> Any:
        choice = get_choice(row)
        return choice and choice.content

    def text(row: TableRow) -> str:
        choice = get_choice(row)
        return choice.text if choice else ""

    def legend(form: Form) -> Iterable[str]:
        return dict.fromkeys(choice.legend for choice in choices)

    return Column(key, head, content, text, legend, CHOSEN, parts={}, numeric=False, folds=True)


def _flops(row: TableRow) -> str:
    return scaled(row.recipe.cost.flops, "").strip()


def _sensitivity(row: TableRow) -> str:
    tuned = row.recipe.tuned
    return number(tuned.sensitivity if tuned else None, 2)


def _time(row: TableRow) -> str:
    if row.recipe.cost.seconds.mean is None:
        return ""
    return duration(row.recipe.cost.seconds.mean)


def _cost_legend(table: Table, form: Form) -> Iterator[str]:
    if not form.with_cost:
        return
    if form.shows("FLOPs"):
        yield "FLOPs: of one training, closed form."
    timed = [head for head in ("tokens/s", "time") if form.shows(head)]
    if not timed:
        return
    yield (
        f"{', '.join(timed)}: mean over seeds of one training with its evaluations, as measured: "
        f"other work on the machine slows it down."
    )
    machines = set[str]()
    for row in table.rows:
        machines.update(row.recipe.cost.machines)
    if machines:
        yield f"Trained on: {'; '.join(sorted(machines))}."
    if len(machines) > 1:
        yield Warned(
            "WARNING: these runs were trained in different places: their times cannot be compared."
        )
