"""Normalization, and the residual connection around a sub-layer (sections 3.1 and 5.4)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.kernels.device import on_gpu
from ablate.kernels.dropout_add import fused_dropout_add_norm
from ablate.model.layers import Dropout

EPS = 1e-6


class LayerNorm(nn.Module):
    """Layer normalization over the last axis, with a gain and a bias (Ba et al., 2016)."""

    def __init__(self, d_model: int, eps: float = EPS) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Division by the root mean square over the last axis, with a gain (Zhang and Sennrich, 2019,
    eq. 4).
    """

    def __init__(self, d_model: int, eps: float = EPS) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        x = x.to(
            self.weight.dtype
        )  # also where products are in bf16, as torch itself does in layer_norm
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class PostNorm(nn.Module):
    """Norm(x + Dropout(Sublayer(x))), as in the paper (3.1, 5.4); without residual,
    Norm(Dropout(Sublayer(x))).
    """

    def __init__(
        self, norm: nn.Module, residual: bool, rate: float, random: torch.Generator
    ) -> None:
        super().__init__()
        self.dropout = Dropout(rate, random)
        self.norm = norm
        self.residual = residual

    def before(self, x: Tensor) -> Tensor:
        """The input of the sub-layer: (B, T, d_model) -> (B, T, d_model)."""
        return x

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        """X and the output of the sub-layer -> the input of the next one; all (B, T, d_model)."""
        norm, dropout = self.norm, self.dropout
        if on_gpu(output) and self.residual and dropout.is_active and isinstance(norm, LayerNorm):
            words = dropout.draw(output)
            with torch.autocast(output.device.type, enabled=False):
                return fused_dropout_add_norm(
                    x, output, words, dropout.dropped, norm.weight, norm.bias, norm.eps
                )
        return norm(self._add(x, output))

    def _add(self, x: Tensor, output: Tensor) -> Tensor:
        total: Tensor = self.dropout(output, residual=x if self.residual else None)
        return total


class PreNorm(PostNorm):
    """x + Dropout(Sublayer(Norm(x))); the stack then ends with one more norm (Xiong et al.,
    2020).
    """

    def before(self, x: Tensor) -> Tensor:
        """The input of the sub-layer: (B, T, d_model) -> (B, T, d_model)."""
        return self.norm(x)

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        """X and the output of the sub-layer -> the input of the next one; all (B, T, d_model)."""
        return self._add(x, output)


# Facts about each, such as its number of parameters, are in ablate/config/variants.py.
NORMS: dict[str, Callable[[int], nn.Module]] = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}
