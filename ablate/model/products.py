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


class InSizes(Products):
    """By oneDNN, with rows in few sizes: for a number of rows that is new to it, it compiles code.

    That can take ten times as long as the product and keeps megabytes, and hardly two batches have as many rows.
    So rows go in parts of the sizes below, and what is left is filled up with zeros to the smallest.
    """

    SIZES = (4096, 2048, 1024, 512, 256, 128, 64)

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b."""
        y = self._rows(x.reshape(-1, x.shape[-1]), weight.T)
        return (y if bias is None else y.add_(bias)).view(*x.shape[:-1], len(weight))

    def to_inputs(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W."""
        return self._rows(grad, weight)

    def to_weight(self, grad: Tensor, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """G^T X, or that added to what is there: a sum over the parts."""
        if not len(x):
            return grad.new_zeros(grad.shape[1], x.shape[1]) if onto is None else onto
        total = grad.new_empty(grad.shape[1], x.shape[1]) if onto is None else onto
        for start, stop, size in self._parts(len(x)):
            G, X = _filled(grad[start:stop], size), _filled(x[start:stop], size)
            self.product(G.T, X, total, add=start > 0 or onto is not None)
        return total

    def _rows(self, a: Tensor, b: Tensor) -> Tensor:
        out = a.new_empty(len(a), b.shape[1])
        for start, stop, size in self._parts(len(a)):
            if stop - start == size:
                self.product(a[start:stop], b, out[start:stop])
            else:
                more = a.new_empty(size, b.shape[1])
                self.product(_filled(a[start:stop], size), b, more)
                out[start:stop] = more[: stop - start]
        return out

    def _parts(self, rows: int) -> Iterator[tuple[int, int, int]]:
        """(begin, end, the size that it is filled up to) of each part."""
        start = 0
        for size in self.SIZES:
            while rows - start >= size:
                yield start, start + size, size
                start += size
        if start < rows:
            yield start, rows, self.SIZES[-1]

    def product(self, a: Tensor, b: Tensor, out: Tensor, add: bool = False) -> None:
        """A B of two matrices, into `out`, or added to what is there."""
        raise NotImplementedError


class Rounded(InSizes):
    """In fp32 but for the operands, which oneDNN rounds to bf16 on the way in; for a CPU."""

    def product(self, a: Tensor, b: Tensor, out: Tensor, add: bool = False) -> None:
        """A B."""
        with _rounding():
            if add:
                torch.addmm(out, a, b, out=out)
            else:
                torch.mm(a, b, out=out)


class OneDNN(InSizes):
    """In fp32 by oneDNN, for processors on which torch's own products are slow."""

    def _rows(self, a: Tensor, b: Tensor) -> Tensor:
        return super()._rows(a, b.T.contiguous().T)  # as each part takes it: turned over once

    def product(self, a: Tensor, b: Tensor, out: Tensor, add: bool = False) -> None:
        """A B."""
        made = torch.ops.mkldnn._linear_pointwise(a.contiguous(), b.T.contiguous(), None, "none", [], "")
        if add:
            out.add_(made)
        else:
            out.copy_(made)


def _filled(x: Tensor, rows: int) -> Tensor:
    """Rows of zeros behind those of x."""
    if len(x) == rows:
        return x
    out = x.new_zeros(rows, x.shape[1])
    out[: len(x)] = x
    return out


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
    """A linear layer on a CPU. Its output is a tensor of its own, not a view: what follows may work in its place."""

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
