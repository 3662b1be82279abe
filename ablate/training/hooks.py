"""Hooks by which a training reports to the process that runs it, and is stopped by it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

# Not by getLogger, so that no logging configuration of the application applies to it.
_SILENT = logging.Logger("ablate.silent")
_SILENT.addHandler(logging.NullHandler())


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


@dataclass(frozen=True)
class RunHooks:
    """Functions that a training calls. The defaults do nothing.

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
