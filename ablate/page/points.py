"""What the figures show, whoever draws them: the page in SVG, or matplotlib for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ablate.config.metrics import Metric
from ablate.report.curves import Curve
from ablate.report.table import Table, TableRow

COLOURS = 8  # told apart in a panel, then again from the first
COSTS = {"flops": "FLOPs of a training", "seconds": "seconds of a training", "params": "parameters"}


@dataclass(frozen=True)
class Panel:
    """The learning curves of a group, base's among them."""

    group: str
    curves: tuple[Curve, ...]

    def look(self, row: str) -> str:
        """Which colour a row has: `base`, or `c0` to `c7`."""
        others = [curve.row for curve in self.curves if curve.row != "base"]
        return "base" if row == "base" else f"c{others.index(row) % COLOURS}"


@dataclass(frozen=True)
class Interval:
    """A row's difference from base; an interval only where several seeds have one. `name`: what a figure calls it."""

    row: str
    name: str
    word: str
    mean: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Spot:
    """A row's score beside its cost; `std` is 0 where one seed has none."""

    row: str
    name: str
    is_base: bool
    cost: float
    score: float
    std: float


def short(label: str, group: str) -> str:
    """A row's label without its group, where what it sets is enough to know it by."""
    return label.removeprefix(f"{group} ")


def panels(curves: Sequence[Curve]) -> list[Panel]:
    """A panel a group, those without a point left out."""
    seen = [curve for curve in curves if curve.by_seed]
    base = [curve for curve in seen if curve.group == "base"]
    groups = list(dict.fromkeys(curve.group for curve in seen if curve.group != "base"))
    found = [Panel(group, (*base, *(curve for curve in seen if curve.group == group))) for group in groups]
    return found or ([Panel("base", tuple(base))] if base else [])


def intervals(table: Table, metric: Metric) -> list[Interval]:
    """Every row but base."""
    found = []
    for row in table.rows:
        verdict = row.verdicts.get(metric.name)
        if verdict is not None:
            low, high = (verdict.seeds.low, verdict.seeds.high) if verdict.seeds else (None, None)
            name = short(row.row.label, row.row.group)
            found.append(Interval(row.row.label, name, verdict.word, verdict.mean, low, high))
    return found


def spots(table: Table, cost: str) -> list[Spot]:
    """Every row with a score in the main metric and this cost: one of COSTS."""
    found = []
    for row in table.rows:
        scores, price = row.scores[table.main.name], _price(row, cost)
        if scores.mean is not None and price:
            is_base = row.row.group == "base"
            found.append(
                Spot(row.row.label, short(row.row.label, row.row.group), is_base, price, scores.mean, scores.std or 0.0)
            )
    return found


def _price(row: TableRow, cost: str) -> float | None:
    return {"seconds": row.cost.seconds.mean, "flops": row.cost.flops, "params": float(row.params)}[cost]
