"""Averaging of checkpoints (section 6.1: the last 5 for base, the last 20 for big)."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from ablate.config import TrainingConfig


def average(files: Sequence[Path]) -> dict[str, Tensor]:
    """The element-wise mean of the weights in these files, summed in double precision."""
    if len(files) == 1:
        return load_file(files[0])
    total: dict[str, Tensor] = {}
    for file in files:
        for name, value in load_file(file).items():
            total[name] = value.double() + total.get(name, 0)
    return {name: (value / len(files)).to(torch.float32) for name, value in total.items()}


def window(config: TrainingConfig, step: int, count: int) -> list[int]:
    """The steps of the last `count` checkpoints that were due up to a step whose weights count, which is the last."""
    spacings = [config.checkpoint_every] + ([config.eval_every] if config.patience is not None else [])
    due = {step, *(at for every in spacings for at in range(step - step % every, max(0, step - count * every), -every))}
    return sorted(due)[-count:]


def checkpoints_until(config: TrainingConfig, step: int) -> int:
    """How many checkpoints were due up to a step whose weights count: those that averaging may choose from.

    They are due every checkpoint_every steps, with patience also at every evaluation, and at the end.
    """
    every, evaluations = config.checkpoint_every, config.eval_every
    due = step // every
    if config.patience is not None:
        due += step // evaluations - step // lcm(every, evaluations)
    on_time = step % every == 0 or (config.patience is not None and step % evaluations == 0)
    return due if on_time else due + 1
