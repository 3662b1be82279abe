"""A metric over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Scores:
    """The values of one metric, by seed."""

    by_seed: Mapping[int, float] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """How many seeds there are."""
        return len(self.by_seed)

    @property
    def mean(self) -> float | None:
        """The arithmetic mean; None without a value."""
        return statistics.fmean(self.by_seed.values()) if self.by_seed else None

    @property
    def std(self) -> float | None:
        """The sample standard deviation (n - 1); None below two values."""
        return statistics.stdev(self.by_seed.values()) if self.n > 1 else None

    def minus(self, other: Scores) -> Scores:
        """Differences, paired by seed: of the seeds that both have."""
        return Scores(
            {seed: value - other.by_seed[seed] for seed, value in self.by_seed.items() if seed in other.by_seed}
        )

    def as_json(self) -> dict[str, Any]:
        """The contract's shape."""
        return {"mean": self.mean, "std": self.std, "n": self.n, "values": list(self.by_seed.values())}
