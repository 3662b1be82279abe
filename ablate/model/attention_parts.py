"""Additions of later papers to multi-head attention: small parts that change its input x, its
queries, keys and values, or its heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.model.attention import AttentionMechanism
from ablate.model.attention_context import AttentionContext, EarlierActivations
from ablate.model.embeddings import Embedding
from ablate.model.layers import Linear, ParameterKinds, optional
from ablate.model.norms import RMSNorm, UnitNorm
from ablate.model.short_convolution import ShortConvolution, token_mask
from ablate.parts.attention import value_width

# Maps tensors (B, T, d) and the state after earlier tokens to new tensors and the new state.
TokenPart = Callable[
    [list[Tensor], Tensor | None, AttentionContext], tuple[list[Tensor], Tensor | None]
]
# Maps heads (B, h, T, d_v) to heads.
HeadPart = Callable[[Tensor, AttentionContext], Tensor]


def pass_through(
    tensors: list[Tensor], past: Tensor | None, context: AttentionContext
) -> tuple[list[Tensor], Tensor | None]:
    """Return the tensors unchanged, and no state."""
    return tensors, None


class AddConvolution:
    """Adds a short convolution over the tokens (Canon layers; Allen-Zhu, 2025)."""

    def __init__(self, convolution: ShortConvolution) -> None:
        self.convolution = convolution

    def __call__(
        self, tensors: list[Tensor], past: Tensor | None, context: AttentionContext
    ) -> tuple[list[Tensor], Tensor | None]:
        """Tensors (B, T, d) -> tensors of the same shapes, and the convolution's last inputs."""
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


def query_norm(c: ModelConfig, heads: int) -> nn.Module:
    """The norm of queries or of keys (B, heads, T, d_k)."""
    if c.qk_norm == "head":
        return RMSNorm(c.d_k)
    if c.qk_norm == "width":
        return WidthNorm(heads * c.d_k)
    return UnitNorm() if c.qk_norm == "unit" else nn.Identity()


class ValueEmbedding(nn.Module):
    """Adds a vector for each token of the vocabulary to its values, optionally gated by head."""

    def __init__(self, config: ModelConfig, vocab_size: int, init: torch.Generator) -> None:
        super().__init__()
        heads, width = config.kv_heads, value_width(config)
        rank = config.value_embedding_rank
        self.table = Embedding(vocab_size, rank or width, init, scale=1.0)
        self.widen: Linear | None = None
        if rank is not None:
            self.widen = Linear(rank, width, init, bias=False)
        is_gated = config.value_embeddings == "gated"
        self.gate = optional(is_gated, Linear, config.d_model, heads, init, bias=False)

    def forward(self, V: Tensor, x: Tensor, earlier: EarlierActivations) -> Tensor:
        """Values (B, T, g * d_v), x (B, T, d_model) -> values (B, T, g * d_v)."""
        vectors = self.table(earlier.tokens.reshape(x.shape[:2]))
        if self.widen is not None:
            vectors = self.widen(vectors)
        if self.gate is not None:
            gates = 2 * self.gate(x).sigmoid()[..., None]  # (B, T, g, 1), initially about 1
            vectors = (vectors.unflatten(2, (gates.shape[2], -1)) * gates).flatten(2)
        return V + vectors.to(V.dtype)


class ValueResidual(nn.Module):
    """V + share * (V_1 - V), with the values V_1 of the first layer that has this module (Zhou et
    al., 2024).
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"share": "gain"}

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.full((1,), 0.5))

    def forward(self, V: Tensor, x: Tensor, earlier: EarlierActivations) -> Tensor:
        """Values (B, T, g * d_v), x (B, T, d_model) -> values (B, T, g * d_v)."""
        if earlier.values is None:
            earlier.values = V
        first = earlier.values.reshape(V.shape)
        return V + self.share.to(V.dtype) * (first - V)


class ExcludeOwnValue:
    """Subtracts from each head its projection onto the value of the same token (nanochat)."""

    def __init__(self, mechanism: AttentionMechanism) -> None:
        self.mechanism = mechanism

    def __call__(self, heads: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v) -> (B, h, T, d_v)."""
        assert context.own_values is not None
        values = repeat_heads(context.own_values, heads.shape[1]).to(heads.dtype)
        direction = F.normalize(self.mechanism.in_output_order(values), dim=-1)
        return heads - (heads * direction).sum(-1, keepdim=True) * direction


class OutputGate:
    """heads * sigmoid(x W^G), with a gate for each head or for each entry (Qiu et al., 2025)."""

    def __init__(self, W_G: Linear) -> None:
        self.W_G = W_G

    def __call__(self, heads: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v) -> (B, h, T, d_v)."""
        assert context.x is not None
        gates = self.W_G(context.x).unflatten(2, (heads.shape[1], -1)).transpose(1, 2)
        return heads * gates.sigmoid()


class HeadFactors:
    """Multiplies each head by its factor, from a tensor (h,); for analysis."""

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors

    def __call__(self, heads: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v) -> (B, h, T, d_v)."""
        return heads * self.factors[:, None, None]


def repeat_heads(heads: Tensor, count: int) -> Tensor:
    """Repeat each head of keys or values for every query head of its group: (B, g, S, d) ->
    (B, count, S, d).
    """
    g = heads.shape[1]
    return heads if g == count else heads.repeat_interleave(count // g, dim=1)
