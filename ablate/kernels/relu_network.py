"""max(0, x W_1 + b_1) W_2 + b_2 as one step of the graph, for training on a CPU.

The inner layer is the widest tensor of a model, and training waits for the memory that it takes. Here the gradient of
ReLU is made in the place of what it is the gradient of, and in bf16 on x86 ReLU is part of the first product: 2 % of a
step in fp32, 2 to 5 % in bf16 (benchmarks/LOG.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ablate.kernels.cpu_matmul import Products, products
from ablate.kernels.linear import is_rounded, own


def relu_network(x: Tensor, W_1: Tensor, b_1: Tensor | None, W_2: Tensor, b_2: Tensor | None) -> Tensor:
    """(..., d_model) -> (..., d_model), as `linear` gives it; both layers have biases."""
    rounded = is_rounded(x)
    x, by = x if rounded else x.to(W_1.dtype), products(x.device, rounded)
    out: Tensor = _ReLUNetwork.apply(  # type: ignore[no-untyped-call]
        x, W_1, b_1, W_2, b_2, by
    )
    return out


class _ReLUNetwork(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor, by: Products) -> Tensor:
        ctx.by, ctx.size, ctx.dtype, ctx.learned = by, x.shape, x.dtype, W_1.dtype
        with torch.autocast("cpu", enabled=False):
            W_1, b_1, W_2, b_2 = (by.matrix(each) for each in (W_1, b_1, W_2, b_2))
            rows = by.rows(x.reshape(-1, x.shape[-1]))
            inner = by.rows(by.positive_outputs(rows, W_1, b_1))
            out = by.outputs(inner, W_2, b_2)
            ctx.save_for_backward(rows, inner, W_1, W_2)
            return own(out[: x[..., 0].numel()].to(x.dtype), x.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, inner, W_1, W_2 = ctx.saved_tensors
        by, n = ctx.by, ctx.size[:-1].numel()
        with torch.autocast("cpu", enabled=False):
            d_out = grads[0].reshape(-1, ctx.size[-1])
            G = by.rows(d_out)
            d_W_2 = by.to_weight(G, inner).to(ctx.learned)
            d_inner = by.rows(by.to_inputs(G, W_2))
            _relu_backward(d_inner, inner)
            d_W_1 = by.to_weight(d_inner, rows).to(ctx.learned)
            d_x = by.to_inputs(d_inner, W_1)[:n].to(ctx.dtype).view(ctx.size)
            return d_x, d_W_1, d_inner.sum(0).to(ctx.learned), d_W_2, d_out.sum(0), None


def _relu_backward(grad: Tensor, y: Tensor) -> None:
    """Take away, in its place, the gradient of y = max(0, ...) where y is 0; y is no NaN, whose sign would count."""
    if y.dtype == torch.bfloat16:  # a number above 0 is an integer above 0 in the same bits: twice as fast, unconverted
        grad, y = grad.view(torch.int16), y.view(torch.int16)
    torch.ops.aten.threshold_backward.grad_input(grad, y, 0, grad_input=grad)
