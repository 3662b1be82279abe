"""What later work added to attention: small parts that multi-head attention applies in order, to x,
to queries, keys and values, and to what its heads put out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.attention_context import AttentionContext
from ablate.model.layers import Linear
from ablate.model.norms import RMSNorm, UnitNorm
from ablate.model.short_convolution import ShortConvolution, tokens_of

# Changes some tensors (B, T, d), with what it kept of the tokens before; returns what to keep.
TokenPart = Callable[
    [list[Tensor], Tensor | None, AttentionContext], tuple[list[Tensor], Tensor | None]
]
# Changes heads (B, h, T, d_v).
HeadPart = Callable[[Tensor, AttentionContext], Tensor]


def unchanged(
    parts: list[Tensor], past: Tensor | None, context: AttentionContext
) -> tuple[list[Tensor], Tensor | None]:
    """The tensors as they are."""
    return parts, None


class Convolved:
    """Tensors of the same tokens, with a convolution of all their channels added (Canon layers;
    Allen-Zhu, 2025).
    """

    def __init__(self, convolution: ShortConvolution) -> None:
        self.convolution = convolution

    def __call__(
        self, parts: list[Tensor], past: Tensor | None, context: AttentionContext
    ) -> tuple[list[Tensor], Tensor | None]:
        """Each (B, T, d) -> the same sizes, and the last inputs of the convolution."""
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        convolved, last = self.convolution(joined, past, tokens_of(joined, context))
        widths = [part.shape[-1] for part in parts]
        return list((joined + convolved).split(widths, dim=-1)), last


class WidthNorm(RMSNorm):
    """RMSNorm over the entries of all heads together: (B, h, T, d) -> the same."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, h, T, d) -> (B, h, T, d)."""
        h = x.shape[1]
        return super().forward(x.transpose(1, 2).flatten(2)).unflatten(2, (h, -1)).transpose(1, 2)


def query_norm(kind: str, heads: int, size: int) -> nn.Module:
    """The norm of queries or of keys (B, heads, T, size), by `qk_norm`."""
    if kind == "head":
        return RMSNorm(size)
    if kind == "width":
        return WidthNorm(heads * size)
    return UnitNorm() if kind == "unit" else nn.Identity()


def without_own_value(heads: Tensor, context: AttentionContext) -> Tensor:
    """Heads without their share along the token's own value (nanochat)."""
    assert context.own_values is not None
    own = repeated(context.own_values, heads.shape[1])
    direction = F.normalize(own.to(heads.dtype), dim=-1)
    return heads - (heads * direction).sum(-1, keepdim=True) * direction


class OutputGate:
    """heads * sigmoid(x W^G), with a number for each head or for each entry (Qiu et al., 2025)."""

    def __init__(self, W_G: Linear) -> None:
        self.W_G = W_G

    def __call__(self, heads: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v) -> (B, h, T, d_v)."""
        assert context.x is not None
        gates = self.W_G(context.x).unflatten(2, (heads.shape[1], -1)).transpose(1, 2)
        return heads * gates.sigmoid()


class HeadFactors:
    """Heads times a factor each, (h,); for analysis."""

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors

    def __call__(self, heads: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v) -> (B, h, T, d_v)."""
        return heads * self.factors[:, None, None]


def repeated(heads: Tensor, count: int) -> Tensor:
    """(B, g, S, d) -> (B, count, S, d): each head once for every query head of its group."""
    g = heads.shape[1]
    return heads if g == count else heads.repeat_interleave(count // g, dim=1)
