"""Normalization (section 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPS = 1e-6


class LayerNorm(nn.LayerNorm):
    """Layer normalization over the last axis, with a gain and a bias (Ba et al., 2016), or a gain
    alone, as in Cohere's models.
    """

    def __init__(self, d_model: int, eps: float = EPS, bias: bool = True) -> None:
        super().__init__(d_model, eps, bias=bias)


class RMSNorm(nn.RMSNorm):
    """Division by the root mean square, with a gain (Zhang and Sennrich, 2019, eq. 4)."""

    def __init__(self, d_model: int, eps: float = EPS) -> None:
        super().__init__(d_model, eps)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        # Also where products are in bf16, as torch itself does in layer_norm.
        return super().forward(x.to(self.weight.dtype))


class UnitNorm(nn.Module):
    """Division by the root mean square over the last axis, without a gain."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., d)."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        return F.rms_norm(x, x.shape[-1:], None, EPS)


class DynamicTanh(nn.Module):
    """gain * tanh(alpha * x) + bias, in the place of a normalization (DyT; Zhu et al., 2025)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), 0.5))
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        return self.weight * torch.tanh(self.alpha * x) + self.bias


# Facts about each, such as its number of parameters, are in ablate/config/variants.py.
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layernorm": LayerNorm,
    "layernorm_no_bias": partial(LayerNorm, bias=False),
    "rmsnorm": RMSNorm,
    "unit": lambda d_model: UnitNorm(),
    "dyt": DynamicTanh,
}
