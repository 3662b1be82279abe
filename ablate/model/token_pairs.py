"""Modules that add information of the previous token to the embedding of a token."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.layers import Embedding, ParameterKinds

# Multipliers of the hash of a pair of tokens, from modded-nanogpt
_TOKEN_MULTIPLIER = 27_191
_PREVIOUS_MULTIPLIER = 36_313


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
    """Adds a vector for the token and the previous one: a row of a table (initially zeros), by the
    hash of the pair.
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
