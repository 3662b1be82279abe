"""Averaging of checkpoints (section 6.1: the last 5 for base, the last 20 for big)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor


def average(files: Sequence[Path]) -> dict[str, Tensor]:
    """The element-wise mean of the weights in these files, summed in double precision."""
    if len(files) == 1:
        return load_file(files[0])
    total: dict[str, Tensor] = {}
    for file in files:
        for name, value in load_file(file).items():
            total[name] = value.double() + total.get(name, 0)
    return {name: (value / len(files)).to(torch.float32) for name, value in total.items()}
