"""The learning rate (section 5.3, eq. 3), and the schedules that others use."""

from __future__ import annotations

import math
from collections.abc import Callable

from ablate.config import RowConfig


def learning_rate(config: RowConfig, step: int, last: int | None) -> float:
    """The learning rate of a step, counted from 1: linear warm-up to the peak, then the schedule.

    With the default schedule and peak this is d_model^-0.5 * min(step^-0.5, step *
    warmup_steps^-1.5).

    Args:
        config: the row.
        step: the step.
        last: the last step; None if unknown. Schedules that decay to 0 reach it one step later.
    """
    warmup = config.warmup_steps
    peak = config.learning_rate or (config.d_model * warmup) ** -0.5
    if step < warmup:
        return peak * step / warmup
    return peak * SCHEDULES[config.schedule](step, warmup, last)


def _inverse_sqrt(step: int, warmup: int, last: int | None) -> float:
    return math.sqrt(warmup / step)


def _constant(step: int, warmup: int, last: int | None) -> float:
    return 1.0


def _linear(step: int, warmup: int, last: int | None) -> float:
    return 1.0 - _progress(step, warmup, last)


def _cosine(step: int, warmup: int, last: int | None) -> float:
    """Half a period (Loshchilov and Hutter, 2017, without restarts)."""
    return 0.5 * (1.0 + math.cos(math.pi * _progress(step, warmup, last)))


def _progress(step: int, warmup: int, last: int | None) -> float:
    """From 0 at the end of the warm-up to 1 one step after the last."""
    assert last is not None  # the configuration requires one for these schedules
    return (step - warmup) / max(1, last + 1 - warmup)


# The learning rate after the warm-up, as a fraction of the peak.
SCHEDULES: dict[str, Callable[[int, int, int | None], float]] = {
    "inverse_sqrt": _inverse_sqrt,
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
}
