"""The feed-forward network with ReLU, max(0, x W_1 + b_1) W_2 + b_2, as one node of the graph.

The inner layer is the widest tensor of a layer, and its memory traffic limits the speed of
training. Here ReLU is part of the first product, and the gradient of ReLU is computed in place.

Gain in bf16 on a CPU: S +2 to +5 %, base and S another +2 to +3.6 % with the gradient of ReLU on
integers (benchmarks/LOG.md, 2026-11-22, padding; at last). In fp32 it gained 2 %, with the same
bits, and is not used.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ablate.kernels.cpu_matmul import Matmul, matmul_for
from ablate.kernels.linear import linear, rounds_to_bf16
from ablate.kernels.torch_internals import relu_backward_, reshape_unaliased


def relu_feed_forward(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    """max(0, x W_1^T + b_1) W_2^T + b_2.

    Args:
        x: (..., d_model).
        W_1: (d_ff, d_model).
        b_1: (d_ff).
        W_2: (d_model, d_ff).
        b_2: (d_model).

    Returns:
        (..., d_model) in the type of x.
    """
    if not rounds_to_bf16(x):
        return reference(x, W_1, b_1, W_2, b_2)
    out: Tensor = _ReLUFeedForward.apply(  # type: ignore[no-untyped-call]
        x, W_1, b_1, W_2, b_2, matmul_for(x.device, bf16=True)
    )
    return out


def reference(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    """`relu_feed_forward` by two linear layers; used for fp32 and on GPUs."""
    return linear(F.relu(linear(x, W_1, b_1)), W_2, b_2)


class _ReLUFeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor, matmul: Matmul
    ) -> Tensor:
        ctx.matmul = matmul
        ctx.x_shape = x.shape
        ctx.x_dtype = x.dtype
        ctx.weight_dtype = W_1.dtype
        with torch.autocast("cpu", enabled=False):
            W_1, b_1, W_2, b_2 = map(matmul.cast, (W_1, b_1, W_2, b_2))
            rows = matmul.pack(x.reshape(-1, x.shape[-1]))  # (M', d_model)
            inner = matmul.pack(matmul.linear_relu(rows, W_1, b_1))  # (M', d_ff)
            out = matmul.linear(inner, W_2, b_2)  # (M', d_model)
            ctx.save_for_backward(rows, inner, W_1, W_2)
            return reshape_unaliased(out[: x.shape[:-1].numel()].to(x.dtype), x.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, inner, W_1, W_2 = ctx.saved_tensors
        matmul = ctx.matmul
        n = ctx.x_shape[:-1].numel()
        with torch.autocast("cpu", enabled=False):
            d_out = grads[0].reshape(-1, ctx.x_shape[-1])  # (M, d_model)
            G = matmul.pack(d_out)
            d_W_2 = matmul.grad_weight(G, inner).to(ctx.weight_dtype)
            # The inner layer shows where ReLU was zero, so no mask is stored.
            d_inner = relu_backward_(matmul.pack(matmul.grad_input(G, W_2)), inner)  # (M', d_ff)
            d_W_1 = matmul.grad_weight(d_inner, rows).to(ctx.weight_dtype)
            d_x = matmul.grad_input(d_inner, W_1)[:n].to(ctx.x_dtype).view(ctx.x_shape)
            # Rows of padding add nothing to a gradient: their inner layer is relu(b_1), but the
            # gradient of their output is zero.
            return d_x, d_W_1, d_inner.sum(0).to(ctx.weight_dtype), d_W_2, d_out.sum(0), None
