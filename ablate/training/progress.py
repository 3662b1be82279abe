"""Where a training is, what it says of itself, and what comes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass


class Diverged(Exception):  # noqa: N818
    """The loss is not a number, or has exploded: a result, not a failure."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        self.reason = reason


@dataclass
class Position:
    """Where training is, and what patience remembers."""

    step: int = 0
    tokens: int = 0  # real target tokens seen
    best_perplexity: float = math.inf
    best_step: int = 0
    evaluations_since_best: int = 0


@dataclass(frozen=True)
class Trained:
    """A finished training. `chosen` is the step whose weights count, `steps` the last one made."""

    steps: int
    chosen: int
    tokens: int


@dataclass(frozen=True)
class Report:
    """What a run says of itself while it trains."""

    step: int
    steps: int | None
    loss: float | None
    perplexity: float | None
    tokens: int
