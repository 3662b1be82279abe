"""Linear layers with bf16 products on a CPU, with their gradients.

In fp32, and on GPUs, a layer is torch.nn.functional.linear. On a CPU in autocast, torch would also
leave the tensors between the products in bf16, for which its element-wise kernels are slow, and
convert an input again for each of its products. Here an input is rounded once, even for several
layers with this input (`linears`) and for layers in sequence (`pack_rows`), and the output has the
type of the input.

Gain: S bf16 +14 to +18 % (benchmarks/LOG.md, 2026-11-21, bf16 on a CPU, second round); with the
projections of one input in one product another +7 % (2026-11-22, padding, measured together with
padding).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ablate.kernels.cpu_matmul import Matmul, matmul_for
from ablate.kernels.device import on_gpu
from ablate.kernels.torch_internals import reshape_unaliased

WeightAndBias = tuple[Tensor, Tensor | None]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """X W^T + b.

    Args:
        x: (..., d_in).
        weight: (d_out, d_in).
        bias: (d_out) or None.

    Returns:
        (..., d_out), on a CPU in autocast in the type of x.
    """
    if rounds_to_bf16(x):
        return linears(x, [(weight, bias)])[0]
    return F.linear(x, weight, bias)


def linears(x: Tensor, layers: Sequence[WeightAndBias]) -> list[Tensor]:
    """Several linear layers of one input; on a GPU, and on a CPU in autocast, they are one product.

    Args:
        x: (..., d_in).
        layers: weight (d_out, d_in) and bias (d_out) or None of each layer; either all layers have
            a bias, or none.

    Returns:
        (..., d_out) of each layer.
    """
    if on_gpu(x) and len(layers) > 1:
        return stacked_linears(x, layers)
    if not rounds_to_bf16(x):
        return [linear(x, *layer) for layer in layers]
    weights, biases = zip(*layers, strict=True)
    outs = _Linears.apply(x, matmul_for(x.device, bf16=True), *weights, *biases)  # type: ignore[no-untyped-call]
    return list(outs)


def stacked_linears(x: Tensor, layers: Sequence[WeightAndBias]) -> list[Tensor]:
    """`linears` as one product, with the weights one below the other; the reference is a product
    for each layer.

    In autocast the input is converted once, and its gradient is one product instead of a sum of
    several. Results are views of one tensor (..., sum of d_out).
    """
    weights, biases = zip(*layers, strict=True)
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weights[0].dtype
    W = torch.cat([weight.to(dtype) for weight in weights])
    b = None if biases[0] is None else torch.cat([bias.to(dtype) for bias in biases])
    return list(F.linear(x.to(dtype), W, b).split([len(weight) for weight in weights], dim=-1))


def on_packed_rows(network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a network of linear layers and element-wise functions to x; on a CPU in autocast, with
    all tensors inside in bf16.

    The input is then rounded once, and rows of padding may follow its rows: their outputs and
    gradients must be finite.

    Args:
        network: function from (..., d_in) to (..., d_out) that treats each row separately.
        x: (..., d_in).

    Returns:
        (..., d_out) in the type of x.
    """
    if not rounds_to_bf16(x):
        return network(x)
    return unpack_rows(network(pack_rows(x)), like=x)


def pack_rows(x: Tensor) -> Tensor:
    """(..., d) -> operands of bf16 products (M', d) with padding rows at the end."""
    rows: Tensor = _PackRows.apply(x, matmul_for(x.device, bf16=True))  # type: ignore[no-untyped-call]
    return rows


def unpack_rows(rows: Tensor, like: Tensor) -> Tensor:
    """(M', d) -> (..., d), with the leading axes and the type of `like`."""
    x: Tensor = _UnpackRows.apply(  # type: ignore[no-untyped-call]
        rows, like.shape[:-1], like.dtype, matmul_for(rows.device, bf16=True)
    )
    return x


def rounds_to_bf16(x: Tensor) -> bool:
    """Whether this module rounds the operands of products of x to bf16: on a CPU in autocast."""
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu")


class _Linears(torch.autograd.Function):
    """Linear layers of one input on a CPU in autocast, as one product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matmul: Matmul, *weights_and_biases: Tensor | None) -> Any:
        n = len(weights_and_biases) // 2
        tensors = [tensor for tensor in weights_and_biases if tensor is not None]
        weights = [matmul.cast(weight) for weight in tensors[:n]]
        biases = [matmul.cast(bias) for bias in tensors[n:]]
        # Weights are converted in this function, so their gradients are converted back to the type
        # of the parameters.
        ctx.weight_dtype = tensors[0].dtype
        with torch.autocast("cpu", enabled=False):
            rows = matmul.pack(x.reshape(-1, x.shape[-1]))
            W = _stacked(weights)
            Y = matmul.linear(rows, W, _stacked(biases) if biases else None)  # (M', sum of d_out)
            blocks = Y[: x.shape[:-1].numel()].split([len(weight) for weight in weights], dim=1)
            # Several outputs are columns of one tensor. They are copied, so that each is contiguous
            # and may be changed in place.
            outs = tuple(
                reshape_unaliased(block.to(x.dtype, copy=n > 1), x.shape[:-1]) for block in blocks
            )
        ctx.save_for_backward(rows, W)
        ctx.matmul = matmul
        ctx.x_shape = x.shape
        ctx.x_dtype = x.dtype
        ctx.has_bias = bool(biases)
        return outs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, W = ctx.saved_tensors
        matmul = ctx.matmul
        widths = [grad.shape[-1] for grad in grads]
        with torch.autocast("cpu", enabled=False):
            blocks = [grad.reshape(-1, grad.shape[-1]) for grad in grads]  # (M, d_out) each
            G = matmul.pack(*blocks)
            d_x = None
            if ctx.needs_input_grad[0]:
                d_rows = matmul.grad_input(G, W)[: ctx.x_shape[:-1].numel()]
                d_x = d_rows.to(ctx.x_dtype).view(ctx.x_shape)
            d_weights = matmul.grad_weight(G, rows).to(ctx.weight_dtype).split(widths)
            # Sums of the gradients before packing, which are not rounded to bf16.
            d_biases = [block.sum(0) if ctx.has_bias else None for block in blocks]
        return d_x, None, *d_weights, *d_biases


def _stacked(blocks: list[Tensor]) -> Tensor:
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks)


class _PackRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matmul: Matmul) -> Tensor:
        ctx.x_shape = x.shape
        ctx.x_dtype = x.dtype
        return matmul.pack(x.reshape(-1, x.shape[-1]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0][: ctx.x_shape[:-1].numel()].to(ctx.x_dtype).view(ctx.x_shape), None


class _UnpackRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, leading: torch.Size, dtype: torch.dtype, matmul: Matmul
    ) -> Tensor:
        ctx.matmul = matmul
        return reshape_unaliased(rows[: leading.numel()].to(dtype), leading)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        # `pack` writes zeros as the gradient of rows of padding.
        return ctx.matmul.pack(grads[0].reshape(-1, grads[0].shape[-1])), None, None, None
