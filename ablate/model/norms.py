"""Normalisation of a vector a position, and where it stands around a sub-layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.layers import Dropout

EPS = 1e-6


class LayerNorm(nn.Module):
    """Layer normalisation over the last axis, with a gain and a bias (Ba et al., 2016)."""

    def __init__(self, d_model: int, eps: float = EPS) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Division by the root mean square over the last axis, with a gain (Zhang and Sennrich, 2019, eq. 4)."""

    def __init__(self, d_model: int, eps: float = EPS) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        x = x.to(self.weight.dtype)  # of bf16 products too; torch does as much for LayerNorm itself
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class PostNorm(nn.Module):
    """Norm(x + Dropout(Sublayer(x))): the paper's (3.1, 5.4). Without residual, Norm(Dropout(Sublayer(x)))."""

    def __init__(self, norm: nn.Module, residual: bool, rate: float, random: torch.Generator) -> None:
        super().__init__()
        self.dropout = Dropout(rate, random)
        self.norm = norm
        self.residual = residual

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer is given: (B, T, d_model) -> (B, T, d_model)."""
        return x

    def after(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """What goes on, from x and what the sub-layer made of it: (B, T, d_model), twice -> (B, T, d_model)."""
        return self.norm(self._added(x, sublayer))

    def _added(self, x: Tensor, sublayer: Tensor) -> Tensor:
        summed: Tensor = self.dropout(sublayer, onto=x if self.residual else None)
        return summed


class PreNorm(PostNorm):
    """x + Dropout(Sublayer(Norm(x))); the stack then ends with a norm of its own (Xiong et al., 2020)."""

    def before(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        return self.norm(x)

    def after(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """(B, T, d_model), twice -> (B, T, d_model)."""
        return self._added(x, sublayer)


NORMS: dict[str, Callable[[int], nn.Module]] = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}
