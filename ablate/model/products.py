"""Matrix products, in fp32 or with their operands rounded to bf16 on the way in.

On a GPU, bf16 is torch's autocast. On a CPU autocast would make bf16 copies of every activation, which
costs more than it saves on small models; oneDNN rounds fp32 operands inside the product instead, and its
sums come out in fp32 (benchmarks/LOG.md has what that gains).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """X W^T + b: (..., d_in), (d_out, d_in), (d_out) -> (..., d_out)."""
    if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        rounded: Tensor = _Rounded.apply(x.to(weight.dtype), weight, bias)  # type: ignore[no-untyped-call]
        return rounded
    return F.linear(x, weight, bias)


@contextmanager
def bf16_products(device: torch.device, enabled: bool) -> Iterator[torch.dtype]:
    """Products of hand-written code in bf16; yields the type that their operands should have: bf16, on a CPU fp32."""
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


class _Rounded(torch.autograd.Function):
    """The three products of a linear layer, each with operands rounded to bf16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        with torch.autocast("cpu", enabled=False), bf16_products(x.device, True):
            return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad, inputs = grads[0].reshape(-1, weight.shape[0]), x.reshape(-1, weight.shape[1])
        with torch.autocast("cpu", enabled=False), bf16_products(x.device, True):
            d_x = (grad @ weight).view_as(x) if ctx.needs_input_grad[0] else None
            return d_x, grad.T @ inputs, grad.sum(0) if ctx.biased else None
