"""Additions of later papers to multi-head attention: small parts that change x, the projections
(queries, keys and values) or the heads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.attention_context import AttentionContext
from ablate.model.layers import Linear
from ablate.model.norms import RMSNorm, UnitNorm
from ablate.model.short_convolution import ShortConvolution, token_mask

# Maps tensors (B, T, d) and the state after earlier tokens to new tensors and the new state.
TokenPart = Callable[
    [list[Tensor], Tensor | None, AttentionContext], tuple[list[Tensor], Tensor | None]
]
# Maps heads (B, h, T, d_v) to heads.
HeadPart = Callable[[Tensor, AttentionContext], Tensor]


def pass_through(
    tensors: list[Tensor], past: Tensor | None, context: AttentionContext
) -> tuple[list[Tensor], Tensor | None]:
    """Return the tensors, without a state."""
    return tensors, None


class AddConvolution:
    """Adds a short convolution over the tokens (Canon layers; Allen-Zhu, 2025)."""

    def __init__(self, convolution: ShortConvolution) -> None:
        self.convolution = convolution

    def __call__(
        self, tensors: list[Tensor], past: Tensor | None, context: AttentionContext
    ) -> tuple[list[Tensor], Tensor | None]:
        """Tensors (B, T, d) -> tensors of the same shapes, and the last inputs."""
        joined = tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=-1)
        convolved, last = self.convolution(joined, past, token_mask(joined, context))
        widths = [x.shape[-1] for x in tensors]
        return list((joined + convolved).split(widths, dim=-1)), last


class WidthNorm(RMSNorm):
    """RMSNorm over the entries of all heads of a token."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, h, T, d) -> (B, h, T, d)."""
        h = x.shape[1]
        return super().forward(x.transpose(1, 2).flatten(2)).unflatten(2, (h, -1)).transpose(1, 2)


def query_norm(qk_norm: str, heads: int, size: int) -> nn.Module:
    """The norm of queries or of keys (B, heads, T, size), by the field `qk_norm`."""
    if qk_norm == "head":
        return RMSNorm(size)
    if qk_norm == "width":
        return WidthNorm(heads * size)
    return UnitNorm() if qk_norm == "unit" else nn.Identity()


def exclude_own_value(heads: Tensor, context: AttentionContext) -> Tensor:
    """Subtract from each head its projection on the value of the same token (nanochat)."""
    assert context.own_values is not None
    values = repeat_heads(context.own_values, heads.shape[1])
    direction = F.normalize(values.to(heads.dtype), dim=-1)
    return heads - (heads * direction).sum(-1, keepdim=True) * direction


class OutputGate:
    """heads * sigmoid(x W^G), with one gate for each head or for each entry (Qiu et al., 2025)."""

    def __init__(self, W_G: Linear) -> None:
        self.W_G = W_G

    def __call__(self, heads: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v) -> (B, h, T, d_v)."""
        assert context.x is not None
        gates = self.W_G(context.x).unflatten(2, (heads.shape[1], -1)).transpose(1, 2)
        return heads * gates.sigmoid()


class HeadFactors:
    """Multiplies each head by a factor, (h,); for analysis."""

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors

    def __call__(self, heads: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v) -> (B, h, T, d_v)."""
        return heads * self.factors[:, None, None]


def repeat_heads(heads: Tensor, count: int) -> Tensor:
    """(B, g, S, d) -> (B, count, S, d): repeat each head for every query head of its group."""
    g = heads.shape[1]
    return heads if g == count else heads.repeat_interleave(count // g, dim=1)
