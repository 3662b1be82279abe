"""The three products of a linear layer, by the way that is fastest for a device and a precision.

On a GPU that is torch's own, and bf16 is torch's autocast. On a CPU autocast would make bf16 copies of every
activation, which costs more than it saves on small models; oneDNN rounds fp32 operands inside the product
instead, and its sums come out in fp32. On AMD processors torch's own products take a slow path of MKL's, and
oneDNN's do not. benchmarks/LOG.md has what each was measured to gain, and what did not gain anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class Products:
    """Torch's own. M rows of inputs (M, d_in) meet a weight (d_out, d_in)."""

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b: (..., d_out)."""
        return F.linear(x, weight, bias)

    def to_inputs(self, grad: Tensor, weight: Tensor) -> Tensor:
        """The gradient G (M, d_out) of outputs -> that of inputs, G W: (M, d_in)."""
        return grad @ weight

    def to_weight(self, grad: Tensor, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """The gradient of the weight, G^T X (d_out, d_in); added to what is there already, in its place."""
        if onto is None:
            return grad.T @ x
        same = onto.dtype == grad.dtype
        return torch.addmm(onto, grad.T, x, out=onto) if same else onto.add_(grad.T @ x)


class Rounded(Products):
    """In fp32 but for the operands, which oneDNN rounds to bf16 on the way in; for a CPU."""

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b."""
        with _rounding():
            return super().outputs(x, weight, bias)

    def to_inputs(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W."""
        with _rounding():
            return super().to_inputs(grad, weight)

    def to_weight(self, grad: Tensor, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """G^T X, or that added to what is there."""
        with _rounding():
            return super().to_weight(grad, x, onto)


class OneDNN(Products):
    """In fp32 by oneDNN, for processors on which torch's own products are slow."""

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x.contiguous(), weight.contiguous(), bias, "none", [], "")
        return y

    def to_inputs(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W."""
        return self.outputs(grad, weight.T)

    def to_weight(self, grad: Tensor, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """G^T X, or that added to what is there."""
        made = self.outputs(grad.T, x.T)
        return made if onto is None else onto.add_(made)


def products(device: torch.device, bf16: bool) -> Products:
    """The products for a device; `bf16`: whether their operands may be rounded."""
    if device.type != "cpu":
        return Products()
    return Rounded() if bf16 else _exact_on_cpu()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """X W^T + b: (..., d_in), (d_out, d_in), (d_out) -> (..., d_out); in bf16 under autocast."""
    if x.device.type != "cpu":
        return F.linear(x, weight, bias)
    by = products(x.device, torch.is_autocast_enabled("cpu"))
    if not torch.is_grad_enabled() and x.dtype == weight.dtype and not isinstance(by, Rounded):
        return by.outputs(x, weight, bias)  # in a decoding step, what autograd asks for takes as long as the product
    y: Tensor = _Linear.apply(x.to(weight.dtype), weight, bias, by)  # type: ignore[no-untyped-call]
    return y


class _Linear(torch.autograd.Function):
    """A linear layer on a CPU. Its output is a tensor of its own, not a view, so what follows may work in its place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, by: Products) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.by, ctx.biased = by, bias is not None
        with torch.autocast("cpu", enabled=False):
            y = by.outputs(x.reshape(-1, weight.shape[1]), weight, bias)
            return torch.ops.aten._unsafe_view(y, (*x.shape[:-1], weight.shape[0]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        grad, inputs = grads[0].reshape(-1, weight.shape[0]), x.reshape(-1, weight.shape[1])
        with torch.autocast("cpu", enabled=False):
            d_x = ctx.by.to_inputs(grad, weight).view_as(x) if ctx.needs_input_grad[0] else None
            return d_x, ctx.by.to_weight(grad, inputs), grad.sum(0) if ctx.biased else None, None


@contextmanager
def _rounding() -> Iterator[None]:
    """Products of fp32 tensors on a CPU round their operands to bf16. Slows the small ones inside attention down."""
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


@cache
def _exact_on_cpu() -> Products:
    try:
        amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        amd = False
    return OneDNN() if amd and torch.backends.mkldnn.is_available() else Products()
