"""Normalization (section 3.1)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ablate.kernels.rms_norm import rms_norm
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
        # In fp32 even under autocast, as torch computes layer normalization.
        return rms_norm(x.to(self.weight.dtype), self.weight, self.eps)


class UnitNorm(nn.Module):
    """Division by the root mean square over the last axis, without a gain."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        return rms_norm(x.to(torch.promote_types(x.dtype, torch.float32)), None, EPS)


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
