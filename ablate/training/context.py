"""The connections of a training to the process around it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ablate.training.progress import StepReport

# Not a registered logger, so that no configuration of the application gives it a handler.
_SILENT = logging.Logger("ablate.silent")
_SILENT.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class RunContext:
    """Hooks through which a run reports, and is stopped. The defaults do nothing.

    log: receives log lines.
    check_lease: called before each write to the run's folder; raises LeaseLost if another process has the run.
    stop_requested: asked after every step; if true, the run saves its state and raises Interrupted.
    on_step: called after every optimizer step.
    on_out_of_memory: called with the new micro-batch size, in padded tokens, before a step is repeated with it.
    """

    log: logging.Logger = _SILENT
    check_lease: Callable[[], None] = lambda: None
    stop_requested: Callable[[], bool] = lambda: False
    on_step: Callable[[StepReport], None] = lambda report: None
    on_out_of_memory: Callable[[int], None] = lambda tokens: None
