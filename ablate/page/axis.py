"""An axis of a figure: where a value stands, and which ticks are told."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from sys import float_info

_ROUND = (1, 2, 2.5, 5, 10)
LOG_FROM = 8.0  # times the smallest value, above which an axis is logarithmic


@dataclass(frozen=True)
class Axis:
    """From values to places: `low` stands at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value stands; outside values are drawn at the edge."""
        value = min(max(value, self.low), self.high)
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values within the axis, at most so many."""
        if self.log:
            return _thinned(_log_ticks(self.low, self.high), most)
        step = _round_step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        found = [round((first + i) * step, 12) for i in range(most + 2)]
        return [value for value in found if value <= self.high * (1 + 1e-12) + 1e-12]


def axis(values: Iterable[float], start: float, end: float, *, zero: bool = False, log: bool | None = None) -> Axis:
    """An axis that holds all values with some air.

    `zero`: it holds 0 too. `log`: whether it is logarithmic; unset, where the values are far apart and above 0.
    """
    found = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(found), max(found)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if log is None:
        log = low > 0 and high / low > LOG_FROM
    if log:
        air = max((high / low) ** 0.06, 1.02)
        return Axis(max(low / air, float_info.min), min(high * air, float_info.max), start, end, log=True)
    air = (high - low) * 0.06 or abs(high) * 0.06 or 1.0
    return Axis(low - air, high + air, start, end)


def label(value: float) -> str:
    """A tick's label: 0.5, 20, 3K, 1.5e+12 as 1.5T."""
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * times for times in _ROUND if power * times >= least * (1 - 1e-9))


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = len(powers) > 3
    found = [times * 10.0**power for power in powers for times in ((1,) if few else (1, 2, 5))]
    found = [value for value in found if low <= value <= high]
    if len(found) >= 2:
        return found
    return Axis(low, high, 0, 1).ticks(3)  # too short a stretch for powers


def _thinned(values: list[float], most: int) -> list[float]:
    return values[:: -(-len(values) // most)] if values else values
