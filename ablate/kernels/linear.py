"""Linear layers whose products are made by the way that is fastest, with their gradients.

On a GPU that is torch's own, and bf16 is torch's autocast. On a CPU autocast would leave all that is between the
products in bf16 too, where torch's kernels are slow, and round an input anew for each of its products. Here it is
rounded once, also for several layers that share it (`linears`), and so is the weight; what comes out has the type of
what went in, but between layers that follow one another, where it is kept as products take it (`to_rows`, `from_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ablate.kernels.cpu_matmul import Products, products

Weights = tuple[Tensor, Tensor | None]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """X W^T + b: (..., d_in), (d_out, d_in), (d_out) -> (..., d_out).

    In autocast on a CPU it has the type of x, else that of the weight.
    """
    if x.device.type != "cpu":
        return F.linear(x, weight, bias)
    if is_rounded(x):
        return linears(x, [(weight, bias)])[0]
    x, by = x.to(weight.dtype), products(x.device, bf16=False)
    if torch.is_grad_enabled():
        y: Tensor = _Linear.apply(x, weight, bias, by)  # type: ignore[no-untyped-call]
        return y
    return _outputs(by, x, weight, bias)  # in a decoding step, what autograd asks for takes as long as the product


def linears(x: Tensor, layers: Sequence[Weights]) -> list[Tensor]:
    """Several linear layers of one input: (..., d_in) -> (..., d_out), each.

    In autocast on a CPU they are one product.

    Args:
        x: (..., d_in).
        layers: the weight (d_out, d_in) and the bias (d_out) or None of each; all have biases, or none has.
    """
    if not is_rounded(x):
        return [linear(x, *layer) for layer in layers]
    weights, biases = zip(*layers, strict=True)
    outs = _Linears.apply(x, products(x.device, bf16=True), *weights, *biases)  # type: ignore[no-untyped-call]
    return list(outs)


def to_rows(x: Tensor) -> Tensor:
    """(..., d) -> as products take it, for several of them: in autocast on a CPU (M, d) in bf16, else as it is.

    Rows of zeros may be among the M, behind the others. What becomes of them on the way must stay finite, and so must
    its gradient.
    """
    if not is_rounded(x):
        return x
    rows: Tensor = _ToRows.apply(x, products(x.device, bf16=True))  # type: ignore[no-untyped-call]
    return rows


def from_rows(rows: Tensor, like: Tensor) -> Tensor:
    """What was made of `to_rows(like)`; where that changed it, in the type and, but for its width, the shape it had."""
    if not is_rounded(rows):
        return rows
    by = products(rows.device, bf16=True)
    x: Tensor = _FromRows.apply(rows, like.shape[:-1], like.dtype, by)  # type: ignore[no-untyped-call]
    return x


def is_rounded(x: Tensor) -> bool:
    """Whether its products are rounded here: in autocast on a CPU. On a GPU torch does it."""
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu")


def _outputs(by: Products, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return own(by.outputs(x.reshape(-1, x.shape[-1]), weight, bias), x.shape[:-1])


def own(y: Tensor, size: torch.Size) -> Tensor:
    """Y (M, d) as (*size, d), which counts as no view: what follows may work in its place."""
    return torch.ops.aten._unsafe_view(y, (*size, y.shape[-1]))


class _Linear(torch.autograd.Function):
    """A linear layer on a CPU, in the type of its weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, by: Products) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.by, ctx.biased = by, bias is not None
        return _outputs(by, x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        G, X = (each.reshape(-1, each.shape[-1]) for each in (grads[0], x))
        d_x = ctx.by.to_inputs(G, weight).view(x.shape) if ctx.needs_input_grad[0] else None
        return d_x, ctx.by.to_weight(G, X), G.sum(0) if ctx.biased else None, None


class _Linears(torch.autograd.Function):
    """Linear layers of one input on a CPU in autocast: their weights one below another, and so one product.

    The weight too is rounded once, and kept.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: Products, *layers: Tensor | None) -> Any:
        weights, biases = ([by.matrix(each) for each in some if each is not None] for some in _halves(layers))
        ctx.learned = next(each.dtype for each in layers if each is not None)
        with torch.autocast("cpu", enabled=False):
            rows, W = by.rows(x.reshape(-1, x.shape[-1])), _one(weights)
            Y = by.outputs(rows, W, _one(biases) if biases else None)
            parts = Y[: x.shape[:-1].numel()].split([len(weight) for weight in weights], dim=1)
            outs = tuple(own(part.to(x.dtype, copy=len(weights) > 1), x.shape[:-1]) for part in parts)
        ctx.save_for_backward(rows, W)
        ctx.by, ctx.size, ctx.dtype, ctx.biased = by, x.shape, x.dtype, bool(biases)
        return outs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, W = ctx.saved_tensors
        by, sizes = ctx.by, [grad.shape[-1] for grad in grads]
        with torch.autocast("cpu", enabled=False):
            each = [grad.reshape(-1, size) for grad, size in zip(grads, sizes, strict=True)]
            G = by.rows(*each)
            d_x = None
            if ctx.needs_input_grad[0]:
                d_x = by.to_inputs(G, W)[: ctx.size[:-1].numel()].to(ctx.dtype).view(ctx.size)
            d_weights = by.to_weight(G, rows).to(ctx.learned).split(sizes)
            d_biases: list[Tensor | None] = [None] * len(each)
            if ctx.biased:
                d_biases = [grad.sum(0) for grad in each]
        return d_x, None, *d_weights, *d_biases


def _halves(layers: Sequence[Tensor | None]) -> tuple[Sequence[Tensor | None], Sequence[Tensor | None]]:
    return layers[: len(layers) // 2], layers[len(layers) // 2 :]


def _one(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


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
        return own(rows[: size.numel()].to(dtype), size)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.by.rows(grads[0].reshape(-1, grads[0].shape[-1])), None, None, None
