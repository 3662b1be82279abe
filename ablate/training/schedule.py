"""The learning rate (section 5.3, eq. 3), the schedules that others use, and that of decay."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from ablate.config import RowConfig
from ablate.own.loading import own_function

Schedule = Callable[[RowConfig, int, int | None], float]


def schedule_of(config: RowConfig, sources: Path) -> Schedule:
    """The schedule that a row names, or a user's own function, whose source is in `sources`."""
    return own_function(config.schedule, sources) or SCHEDULES[config.schedule]


def learning_rate(
    config: RowConfig, step: int, last: int | None, schedule: Schedule | None = None
) -> float:
    """The learning rate of a step, counted from 1: linear warm-up to the peak, then the schedule.

    With the default schedule and peak this is d_model^-0.5 * min(step^-0.5, step *
    warmup_steps^-1.5).

    Args:
        config: the row.
        step: the step.
        last: the last step; None if unknown. Schedules that fall reach their end one step later.
        schedule: the share of the peak after the warm-up; that of the table by default.
    """
    warmup = config.warmup_steps
    peak = config.learning_rate or (config.d_model * warmup) ** -0.5
    if step < warmup:
        return peak * step / warmup
    return peak * (schedule or SCHEDULES[config.schedule])(config, step, last)


def decay_share(config: RowConfig, step: int, last: int | None) -> float:
    """The share of the weight decay in a step: from 1 in the first step to 0 after the last."""
    if config.decay_schedule == "constant":
        return 1.0
    progress = _progress(1, step, last)
    return _half_cosine(progress) if config.decay_schedule == "cosine" else 1.0 - progress


def _inverse_sqrt(config: RowConfig, step: int, last: int | None) -> float:
    return math.sqrt(config.warmup_steps / step)


def _constant(config: RowConfig, step: int, last: int | None) -> float:
    return 1.0


def _linear(config: RowConfig, step: int, last: int | None) -> float:
    return _to_floor(config, 1.0 - _progress(config.warmup_steps, step, last))


def _cosine(config: RowConfig, step: int, last: int | None) -> float:
    return _to_floor(config, _half_cosine(_progress(config.warmup_steps, step, last)))


def _wsd(config: RowConfig, step: int, last: int | None) -> float:
    """A plateau, then a linear fall over the last steps (Hu et al., 2024; Hagele et al., 2024)."""
    assert last is not None
    begin = max(config.warmup_steps, round((1 - config.decay_fraction) * last))
    return 1.0 if step <= begin else _to_floor(config, 1.0 - _progress(begin, step, last))


def _progress(begin: int, step: int, last: int | None) -> float:
    """From 0 at the step `begin` to 1 one step after the last."""
    assert last is not None  # the configuration requires one for these schedules
    return (step - begin) / max(1, last + 1 - begin)


def _half_cosine(progress: float) -> float:
    """From 1 to 0 by half a period (Loshchilov and Hutter, 2017, without restarts)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def _to_floor(config: RowConfig, share: float) -> float:
    """A fall from 1 to 0 as one from 1 to the final rate."""
    floor = config.final_rate
    return floor + (1.0 - floor) * share if floor else share


# The learning rate after the warm-up, as a fraction of the peak.
SCHEDULES: dict[str, Schedule] = {
    "inverse_sqrt": _inverse_sqrt,
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "wsd": _wsd,
}
