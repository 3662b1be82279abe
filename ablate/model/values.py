"""Modules that add to the values of attention."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.model.attention_context import EarlierActivations
from ablate.model.layers import Embedding, Linear, ParameterKinds, optional
from ablate.parts.attention import value_width


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
        """Values (B, T, g * d_v) of x (B, T, d_model) -> the same size."""
        vectors = self.table(earlier.tokens.reshape(x.shape[:2]))
        if self.widen is not None:
            vectors = self.widen(vectors)
        if self.gate is not None:
            gates = 2 * self.gate(x).sigmoid()[..., None]  # (B, T, g, 1), initially about 1
            vectors = (vectors.unflatten(2, (gates.shape[2], -1)) * gates).flatten(2)
        return V + vectors.to(V.dtype)


class ValueResidual(nn.Module):
    """V + share * (V_1 - V), with the first layer's values V_1 (Zhou et al., 2024)."""

    parameter_kinds: ClassVar[ParameterKinds] = {"share": "gain"}

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.full((1,), 0.5))

    def forward(self, V: Tensor, x: Tensor, earlier: EarlierActivations) -> Tensor:
        """Values (B, T, g * d_v) of x (B, T, d_model) -> the same size."""
        if earlier.values is None:
            earlier.values = V
        first = earlier.values.reshape(V.shape)
        return V + self.share.to(V.dtype) * (first - V)
