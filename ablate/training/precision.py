"""The precision of a training step."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """The products of the modules in bf16 where `precision` says so; weights stay fp32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
