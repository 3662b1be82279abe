"""State of a training, the report after each step, and the outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass


class Diverged(Exception):  # noqa: N818
    """The loss is not finite, or has exploded. A diverged run is a result, not a failure."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        self.reason = reason


@dataclass
class TrainingProgress:
    """Steps made, and the memory of early stopping.

    tokens: target tokens trained on, without padding.
    best_perplexity: lowest dev perplexity so far, reached at `best_step`.
    """

    step: int = 0
    tokens: int = 0
    best_perplexity: float = math.inf
    best_step: int = 0
    evaluations_since_best: int = 0


@dataclass(frozen=True)
class TrainingOutcome:
    """A finished training: the last step, the step whose weights are used, and the target tokens trained on."""

    steps: int
    chosen: int
    tokens: int


@dataclass(frozen=True)
class StepReport:
    """The report after an optimizer step.

    steps: the last step, if one is known.
    loss: training loss in nats per token, mean since the previous log line.
    perplexity: of the last evaluation on the dev split.
    tokens: target tokens trained on so far.
    """

    step: int
    steps: int | None
    loss: float | None
    perplexity: float | None
    tokens: int
