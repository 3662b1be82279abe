"""bf16 arithmetic for the matrix products, on both kinds of device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """The products of the modules in bf16 where `precision` says so; weights stay fp32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def bf16_products(device: torch.device, enabled: bool) -> Iterator[torch.dtype]:
    """Products of hand-written code in bf16; yields the type that their operands should have.

    A GPU takes bf16 operands. On a CPU the operands stay fp32 and oneDNN rounds them on their way into
    the product: its sums come out in fp32, and no copies of large tensors are made.
    """
    if device.type != "cpu" or not enabled:
        yield torch.bfloat16 if enabled else torch.float32
        return
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield torch.float32
    finally:
        matmul.fp32_precision = before
