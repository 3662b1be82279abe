"""Scores of a row over seeds, and their differences from base."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ablate.formatting import number, spread_text


@dataclass(frozen=True)
class Scores:
    """The values of one metric, by seed.

    is_log: whether the logarithms of the values are averaged and compared (`Metric.scale`).
    """

    by_seed: Mapping[int, float] = field(default_factory=dict)
    is_log: bool = False

    @property
    def n(self) -> int:
        """Number of seeds with a value."""
        return len(self.by_seed)

    @cached_property
    def mean(self) -> float | None:
        """Arithmetic mean, or geometric mean if `is_log`; None without values."""
        if not self.n:
            return None
        # fmean and stdev round once, at the end: tables do not depend on the order of seeds.
        mean = statistics.fmean(self.transformed.values())
        return math.exp(mean) if self.is_log else mean

    @property
    def std(self) -> float | None:
        """Sample standard deviation (n - 1 in the denominator), of the logarithms if `is_log`; None
        for fewer than two values.
        """
        return statistics.stdev(self.transformed.values()) if self.n > 1 else None

    @property
    def transformed(self) -> Mapping[int, float]:
        """The values on the scale of the metric: their logarithms if `is_log`."""
        if not self.is_log:
            return self.by_seed
        return {seed: math.log(value) for seed, value in self.by_seed.items()}

    def minus(self, base: Scores, shift: float = 0.0) -> Scores:
        """Differences from base on the scale of the metric, for the seeds that both have. The shift
        is added to each difference.
        """
        theirs = base.transformed
        differences = {}
        for seed, value in self.transformed.items():
            if seed in theirs:
                differences[seed] = value - theirs[seed] + shift
        return Scores(differences)

    def only_seeds(self, seeds: Collection[int]) -> Scores:
        """The scores of these seeds; a seed without a score is skipped."""
        values = {seed: value for seed, value in self.by_seed.items() if seed in seeds}
        return replace(self, by_seed=values)

    def as_json(self, n_seeds: int = 0) -> dict[str, Any]:
        """The scores as JSON values; with the seeds of the values, if fewer than `n_seeds` have
        one: values of two rows at the same position could then have different seeds.
        """
        values = list(self.by_seed.values())
        content = {"mean": self.mean, "std": self.std, "n": self.n, "values": values}
        if 0 < self.n < n_seeds:
            content["seeds"] = list(self.by_seed)
        return content


def mean_and_std(scores: Scores, digits: int, seeds: int) -> str:
    """Mean and standard deviation, such as `25.8 ±0.2`, or `25.8 ±0.2 (2/3)` with 2 of 3 seeds."""
    text = number(scores.mean, digits) + spread_text(scores.std, digits, scores.is_log)
    return text + count_of(scores.n, seeds)


def count_of(n: int, seeds: int) -> str:
    """` (2/3)` for a value over 2 of 3 seeds; empty if all seeds or none have a value."""
    return f" ({n}/{seeds})" if 0 < n < seeds else ""
