"""Normalization (section 3.1)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ablate.kernels.device import on_gpu
from ablate.model.layers import ParameterKinds

EPS = 1e-6


class LayerNorm(nn.LayerNorm):
    """Layer normalization over the last axis, with a gain and a bias (Ba et al., 2016).

    `bias=False` leaves the bias out, as in Cohere's models.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "gain", "bias": "bias"}

    def __init__(self, d_model: int, eps: float = EPS, bias: bool = True) -> None:
        super().__init__(d_model, eps, bias=bias)


class RMSNorm(nn.RMSNorm):
    """Division by the root mean square, with a gain (Zhang and Sennrich, 2019, eq. 4)."""

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "gain"}

    eps: float  # may be None in torch's class

    def __init__(self, d_model: int, eps: float = EPS) -> None:
        super().__init__(d_model, eps)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        # In fp32 also under autocast, as torch's layer_norm.
        return rms_norm(x.to(self.weight.dtype), self.weight, self.eps)


class UnitNorm(nn.Module):
    """Division by the root mean square over the last axis, without a gain."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        return rms_norm(x.to(torch.promote_types(x.dtype, torch.float32)), None, EPS)


def rms_norm(x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
    """Compute gain * x / sqrt(mean(x^2) + eps) over the last axis.

    On a CPU, torch's function is a sequence of element-wise functions. This function has the same
    values to the bit, and its backward pass takes less than half of the time (benchmarks/LOG.md,
    2026-11-27).

    Args:
        x: (..., d).
        gain: (d,), or None for none.
        eps: added to the mean square.

    Returns:
        (..., d).
    """
    if on_gpu(x) or not torch.is_grad_enabled():
        return F.rms_norm(x, x.shape[-1:], gain, eps)
    y: Tensor = _RMSNorm.apply(x, gain, eps)  # type: ignore[no-untyped-call]
    return y


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
        scale = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        normed = x * scale
        # Without a gain, `normed` is the output, which the caller may change in place; so save x.
        ctx.save_for_backward(x if gain is None else normed, scale, gain)
        return normed if gain is None else normed * gain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (grad,) = grads
        saved, scale, gain = ctx.saved_tensors
        normed = saved if gain is not None else saved * scale
        grad_gain = None
        d = saved.shape[-1]
        products = grad * normed
        if gain is None:
            projection = products.sum(-1, keepdim=True)
            grad_x = products.copy_(grad)
        else:
            grad_gain = products.reshape(-1, d).sum(0)
            projection = (products @ gain)[..., None]
            grad_x = torch.mul(grad, gain, out=products)
        # The output does not depend on the length of x: the gradient has no component along x.
        return grad_x.addcmul_(normed, projection, value=-1 / d).mul_(scale), grad_gain, None


class DynamicTanh(nn.Module):
    """gain * tanh(alpha * x) + bias, instead of a normalization (DyT; Zhu et al., 2025)."""

    parameter_kinds: ClassVar[ParameterKinds] = {"alpha": "gain", "weight": "gain", "bias": "bias"}

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), 0.5))
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        return self.weight * torch.tanh(self.alpha * x) + self.bias


def layer_norm_without_bias(d_model: int) -> LayerNorm:
    """Layer normalization with a gain and no bias."""
    return LayerNorm(d_model, bias=False)


def unit_norm(d_model: int) -> UnitNorm:
    """RMSNorm without a gain. The argument is unused: every norm is constructed with d_model."""
    return UnitNorm()
