"""Schedules of the learning rate (section 5.3, eq. 3, and newer schedules) and the weight decay."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from ablate.config import RowConfig
from ablate.custom.loading import load_function

# Maps the row, the step and the last step to the learning rate after the warm-up, as a fraction of
# the peak.
Schedule = Callable[[RowConfig, int, int | None], float]


def schedule_of(config: RowConfig, sources: Path) -> Schedule:
    """The schedule that a row names: a built-in one, or a user's function from `sources`."""
    return load_function(config.schedule, sources) or SCHEDULES[config.schedule]


def learning_rate(
    config: RowConfig, step: int, last: int | None, schedule: Schedule | None = None
) -> float:
    """The learning rate of a step: linear warm-up to the peak, then the schedule.

    With the default schedule and peak this is d_model^-0.5 * min(step^-0.5, step *
    warmup_steps^-1.5).

    Args:
        config: the row.
        step: number of the step, counted from 1.
        last: the last step; None if unknown. A falling schedule reaches its end one step later.
        schedule: the schedule after the warm-up; by default, the built-in schedule of the row.
    """
    warmup = config.warmup_steps
    peak = config.learning_rate or (config.d_model * warmup) ** -0.5
    if step < warmup:
        return peak * step / warmup
    return peak * (schedule or SCHEDULES[config.schedule])(config, step, last)


def decay_share(config: RowConfig, step: int, last: int | None) -> float:
    """The fraction of the weight decay that applies in a step: constant, or falling from 1 in the
    first step to 0 after the last.
    """
    if config.decay_schedule == "constant":
        return 1.0
    progress = _progress(1, step, last)
    return _half_cosine(progress) if config.decay_schedule == "cosine" else 1.0 - progress


def _inverse_sqrt(config: RowConfig, step: int, last: int | None) -> float:
    return math.sqrt(config.warmup_steps / step)


def _constant(config: RowConfig, step: int, last: int | None) -> float:
    return 1.0


def _linear(config: RowConfig, step: int, last: int | None) -> float:
    return _above_floor(config, 1.0 - _progress(config.warmup_steps, step, last))


def _cosine(config: RowConfig, step: int, last: int | None) -> float:
    return _above_floor(config, _half_cosine(_progress(config.warmup_steps, step, last)))


def _wsd(config: RowConfig, step: int, last: int | None) -> float:
    """Warmup-stable-decay: constant, then linear to the end (Hu et al.; Hagele et al., 2024)."""
    assert last is not None
    begin = max(config.warmup_steps, round((1 - config.decay_fraction) * last))
    if step <= begin:
        return 1.0
    return _above_floor(config, 1.0 - _progress(begin, step, last))


def _progress(begin: int, step: int, last: int | None) -> float:
    """The progress of a fall: linearly from 0 at step `begin` to 1 at the step after the last."""
    assert last is not None  # the configuration requires it for these schedules
    return (step - begin) / max(1, last + 1 - begin)


def _half_cosine(progress: float) -> float:
    """Half a period of a cosine, from 1 to 0 (Loshchilov and Hutter, 2017, without restarts)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def _above_floor(config: RowConfig, share: float) -> float:
    """Rescale a fall from 1 to 0, so that it ends at `final_rate`."""
    floor = config.final_rate
    return floor + (1.0 - floor) * share if floor else share


# The built-in schedules by name.
SCHEDULES: dict[str, Schedule] = {
    "inverse_sqrt": _inverse_sqrt,
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "wsd": _wsd,
}
