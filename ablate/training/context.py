"""Interface between a training and the process that runs it: hooks, progress, reports, outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

# Not by getLogger, so that no logging configuration of the application applies to it.
_SILENT = logging.Logger("ablate.silent")
_SILENT.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class RunContext:
    """Hooks by which a run reports and is stopped. The defaults do nothing.

    log: receives log lines.
    check_lease: called before each write to the run's folder; raises LeaseLost if another process
        has taken over the run.
    stop_requested: called after every step; if it returns true, the run saves a checkpoint and
        raises Interrupted.
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
    """Number of steps made, and the state of early stopping.

    step: number of optimizer steps made.
    tokens: number of target tokens trained on, without padding.
    best_perplexity: lowest dev perplexity so far; None before the first evaluation.
    best_step: step of `best_perplexity`.
    evaluations_since_best: number of evaluations after `best_step`.
    """

    step: int = 0
    tokens: int = 0
    best_perplexity: float | None = None
    best_step: int = 0
    evaluations_since_best: int = 0


@dataclass(frozen=True)
class TrainingOutcome:
    """The outcome of a finished training.

    last_step: number of optimizer steps made.
    chosen_step: step whose weights are used: with patience the best step, else the last.
    tokens: number of target tokens trained on, without padding.
    """

    last_step: int
    chosen_step: int
    tokens: int


@dataclass(frozen=True)
class StepReport:
    """The report after an optimizer step.

    step: number of optimizer steps made.
    steps: number of optimizer steps of the whole training; None if unknown.
    loss: training loss in nats per token at the last log line: a mean over the steps since the log
        line before it.
    perplexity: perplexity of the last evaluation on the dev split.
    tokens: number of target tokens trained on so far.
    """

    step: int
    steps: int | None
    loss: float | None
    perplexity: float | None
    tokens: int
