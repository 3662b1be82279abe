"""What connects a training to the process around it: hooks, state, reports and the outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

# Not a registered logger, so that no configuration of the application gives it a handler.
_SILENT = logging.Logger("ablate.silent")
_SILENT.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class RunContext:
    """Hooks through which a run reports, and is stopped. The defaults do nothing.

    log: receives log lines.
    check_lease: called before each write to the run's folder; raises LeaseLost if another process
        has the run.
    stop_requested: asked after every step; if true, the run saves its state and raises Interrupted.
    on_step: called after every optimizer step.
    on_evaluation: called before every evaluation on the dev split.
    on_out_of_memory: called with the new micro-batch size, in padded tokens, before a step is
        repeated with it.
    """

    log: logging.Logger = _SILENT
    check_lease: Callable[[], None] = lambda: None
    stop_requested: Callable[[], bool] = lambda: False
    on_step: Callable[[StepReport], None] = lambda report: None
    on_evaluation: Callable[[], None] = lambda: None
    on_out_of_memory: Callable[[int], None] = lambda tokens: None


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
    best_perplexity: lowest dev perplexity so far, reached at `best_step`; None before the first
        evaluation.
    """

    step: int = 0
    tokens: int = 0
    best_perplexity: float | None = None
    best_step: int = 0
    evaluations_since_best: int = 0


@dataclass(frozen=True)
class TrainingOutcome:
    """A finished training: its last step, that whose weights are used, its target tokens."""

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
