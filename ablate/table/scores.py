"""The values of a metric over seeds, and their comparison with base."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ablate.formatting import number, spread_text


@dataclass(frozen=True)
class Scores:
    """The values of one metric, by seed.

    is_log: whether their logarithms are averaged and compared (`Metric.scale`).
    """

    by_seed: Mapping[int, float] = field(default_factory=dict)
    is_log: bool = False

    @property
    def n(self) -> int:
        """Number of seeds with a value."""
        return len(self.by_seed)

    @property
    def mean(self) -> float | None:
        """Arithmetic mean, or geometric of logarithms; None without values."""
        if not self.n:
            return None
        # fmean and stdev round once, at the end: tables do not depend on the order of seeds.
        middle = statistics.fmean(self.transformed.values())
        return math.exp(middle) if self.is_log else middle

    @property
    def std(self) -> float | None:
        """Sample standard deviation (n - 1 in the denominator), or that of logarithms; None for
        fewer than two values.
        """
        return statistics.stdev(self.transformed.values()) if self.n > 1 else None

    @property
    def transformed(self) -> Mapping[int, float]:
        """The values as they are averaged and compared."""
        if not self.is_log:
            return self.by_seed
        return {seed: math.log(value) for seed, value in self.by_seed.items()}

    def minus(self, base: Scores, shift: float = 0.0) -> Scores:
        """Differences paired by seed, for the seeds that both have; of logarithms if they count.

        Args:
            base: scores that are subtracted.
            shift: added to each difference.
        """
        theirs, differences = base.transformed, {}
        for seed, value in self.transformed.items():
            if seed in theirs:
                differences[seed] = value - theirs[seed] + shift
        return Scores(differences)

    def with_seeds(self, seeds: Collection[int]) -> Scores:
        """The scores of these seeds."""
        kept = {seed: value for seed, value in self.by_seed.items() if seed in seeds}
        return replace(self, by_seed=kept)

    def as_json(self) -> dict[str, Any]:
        """The scores for scripts."""
        values = list(self.by_seed.values())
        return {"mean": self.mean, "std": self.std, "n": self.n, "values": values}


def mean_and_std(scores: Scores, digits: int, seeds: int) -> str:
    """Mean and standard deviation: `25.8 ±0.2`; with the number of seeds while some are missing:
    `25.8 ±0.2 (2/3)`.
    """
    text = number(scores.mean, digits) + spread_text(scores.std, digits, scores.is_log)
    return f"{text} ({scores.n}/{seeds})" if scores.n and scores.n < seeds else text
