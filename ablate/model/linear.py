"""Linear layers whose products are made by the way that is fastest, with their gradients.

On a GPU that is torch's own, and bf16 is torch's autocast. On a CPU autocast would leave all that is between the
products in bf16 too, where torch's kernels are slow, and round an input anew for each of its products. Here it is
rounded once; what comes out has the type of what went in; and only between layers that follow one another, or share
their input, is it kept as products take it (`to_rows`, `from_rows`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ablate.model.products import Products, products


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """X W^T + b: (..., d_in), (d_out, d_in), (d_out) -> (..., d_out).

    In autocast on a CPU it has the type of x, else that of the weight.
    """
    if x.device.type != "cpu":
        return F.linear(x, weight, bias)
    rounded = _is_ours_to_round(x)
    by = products(x.device, rounded)
    x = x if rounded else x.to(weight.dtype)
    if rounded or torch.is_grad_enabled():
        y: Tensor = _Linear.apply(x, weight, bias, by)  # type: ignore[no-untyped-call]
        return y
    return _outputs(by, x, weight, bias)[1]  # in a decoding step, what autograd asks for takes as long as the product


def to_rows(x: Tensor) -> Tensor:
    """(..., d) -> as products take it, for several of them: in autocast on a CPU (M, d) in bf16, else as it is.

    Rows of zeros may be among the M, behind the others. What becomes of them on the way must stay finite, and so must
    its gradient.
    """
    if not _is_ours_to_round(x):
        return x
    rows: Tensor = _ToRows.apply(x, products(x.device, bf16=True))  # type: ignore[no-untyped-call]
    return rows


def from_rows(rows: Tensor, like: Tensor) -> Tensor:
    """What was made of `to_rows(like)`; where that changed it, in the type and, but for its width, the shape it had."""
    if not _is_ours_to_round(rows):
        return rows
    by = products(rows.device, bf16=True)
    x: Tensor = _FromRows.apply(rows, like.shape[:-1], like.dtype, by)  # type: ignore[no-untyped-call]
    return x


def _is_ours_to_round(x: Tensor) -> bool:
    """Whether it is in autocast on a CPU; on a GPU torch does it."""
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu")


def _outputs(by: Products, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The rows that the product took, and what it gave in the shape of x: its own memory, and no view."""
    d_out, d_in = weight.shape
    rows = by.rows(x.reshape(-1, d_in))
    y = by.outputs(rows, by.matrix(weight), None if bias is None else by.matrix(bias))
    size = x.shape[:-1]
    return rows, torch.ops.aten._unsafe_view(y[: size.numel()].to(x.dtype), (*size, d_out))


class _Linear(torch.autograd.Function):
    """A linear layer on a CPU. What follows may work in the place of its output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, by: Products) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            rows, y = _outputs(by, x, weight, bias)
        ctx.save_for_backward(rows, weight)
        ctx.by, ctx.biased, ctx.size, ctx.dtype = by, bias is not None, x.shape, x.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:
        rows, weight = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            d_y = grads[0].reshape(-1, len(weight))
            d_bias = d_y.sum(0).to(weight.dtype) if ctx.biased else None
            G = ctx.by.rows(d_y)
            d_x = None
            if ctx.needs_input_grad[0]:
                d_x = ctx.by.to_inputs(G, ctx.by.matrix(weight))[: len(d_y)].to(ctx.dtype).view(ctx.size)
            return d_x, ctx.by.to_weight(G, rows).to(weight.dtype), d_bias, None


class _ToRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, by: Products) -> Tensor:
        ctx.size, ctx.dtype = x.shape, x.dtype
        return by.rows(x.reshape(-1, x.shape[-1]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0][: ctx.size[:-1].numel()].to(ctx.dtype).view(ctx.size), None


class _FromRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, size: torch.Size, dtype: torch.dtype, by: Products) -> Tensor:
        ctx.by = by
        return torch.ops.aten._unsafe_view(rows[: size.numel()].to(dtype), (*size, rows.shape[1]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.by.rows(grads[0].reshape(-1, grads[0].shape[-1])), None, None, None
