"""A metric over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ablate.config.metrics import Metric
from ablate.formatting import number
from ablate.store.records import Score


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


def describe_scores(scores: Mapping[str, Score], metrics: Iterable[Metric]) -> str:
    """`PPL 4.92, BLEU 25.8`: the scores of one run in some metrics."""
    return ", ".join(f"{m.title} {number(scores[m.name].value, m.digits)}" for m in metrics if m.name in scores)


def spread(scores: Scores, digits: int, seeds: int) -> str:
    """Mean and standard deviation: `25.8 ±0.2`; with the count of seeds while some are missing: `25.8 ±0.2 (2/3)`."""
    text = number(scores.mean, digits)
    if scores.std is not None:
        text += f" ±{scores.std:.{digits}f}"
    return f"{text} ({scores.n}/{seeds})" if scores.n and scores.n < seeds else text
