"""Embeddings of tokens (section 3.4), and modules that add to them."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.layers import ParameterKinds

# Multipliers in the hash of a pair of tokens, from modded-nanogpt
_TOKEN_MULTIPLIER = 27_191
_PREVIOUS_MULTIPLIER = 36_313


class Embedding(nn.Module):
    """A matrix (V, d_model) of token vectors, which are multiplied by a scale, by default
    sqrt(d_model) (3.4).

    Entries are drawn from N(0, 1/d_model), so that with the default scale vectors have variance 1,
    and initial logits about 1.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "embedding"}

    def __init__(
        self, vocab_size: int, d_model: int, init: torch.Generator, scale: float | None = None
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.scale = math.sqrt(d_model) if scale is None else scale
        nn.init.normal_(self.weight, std=d_model**-0.5, generator=init)

    def forward(self, tokens: Tensor) -> Tensor:
        """(...) token ids -> (..., d_model)."""
        vectors = F.embedding(tokens, self.weight)
        return vectors if self.scale == 1.0 else vectors * self.scale


class TokenTypes(nn.Module):
    """A learned vector for each token type. A run reads single texts, whose tokens all have the
    first type.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "embedding"}

    def __init__(self, types: int, d_model: int, init: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(types, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5, generator=init)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        return x + self.weight[0]


def previous_tokens(tokens: Tensor) -> Tensor:
    """The previous token of each token, 0 for the first: (B, T) -> (B, T)."""
    return F.pad(tokens[:, :-1], (1, 0))


class Smear(nn.Module):
    """x_t + strength * sigmoid(w . x_t) x_(t-1), with a trained strength (initially 0)."""

    parameter_kinds: ClassVar[ParameterKinds] = {"gate": "matrix", "strength": "gain"}

    def __init__(self, d_model: int, init: torch.Generator) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(d_model))
        self.strength = nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.gate, std=d_model**-0.5, generator=init)

    def forward(self, x: Tensor, embedding: Embedding, tokens: Tensor, previous: Tensor) -> Tensor:
        """Embeddings x (B, T, d_model), their tokens and previous tokens (B, T) ->
        (B, T, d_model).
        """
        previous_embedding = embedding(previous) * (previous != 0)[..., None]
        gate = (x * self.gate).sum(-1, keepdim=True).sigmoid()
        return x + self.strength * gate * previous_embedding


class BigramEmbeddings(nn.Module):
    """Adds a vector for each pair of a token and the previous token: the row of a table (initially
    zeros) at the hash of the pair.
    """

    def __init__(self, rows: int, d_model: int, init: torch.Generator) -> None:
        super().__init__()
        self.table = Embedding(rows, d_model, init, scale=1.0)
        nn.init.zeros_(self.table.weight)

    def forward(self, x: Tensor, embedding: Embedding, tokens: Tensor, previous: Tensor) -> Tensor:
        """Embeddings x (B, T, d_model), their tokens and previous tokens (B, T) ->
        (B, T, d_model).
        """
        hashes = tokens * _TOKEN_MULTIPLIER ^ previous * _PREVIOUS_MULTIPLIER
        return x + self.table(hashes % len(self.table.weight))
