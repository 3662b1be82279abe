"""What the embedding of a token takes from the token before it."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.layers import Embedding, ParameterKinds

# Odd numbers that spread pairs of tokens over the rows of a table, as in modded-nanogpt.
_OF_TOKEN = 27_191
_OF_PREVIOUS = 36_313


def previous_tokens(tokens: Tensor) -> Tensor:
    """The token before each one, 0 before the first: (B, T) -> (B, T)."""
    return F.pad(tokens[:, :-1], (1, 0))


class Smear(nn.Module):
    """x_t + strength * sigmoid(w . x_t) x_(t-1), with a strength that begins at 0."""

    parameter_kinds: ClassVar[ParameterKinds] = {"gate": "matrix", "strength": "gain"}

    def __init__(self, d_model: int, init: torch.Generator) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(d_model))
        self.strength = nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.gate, std=d_model**-0.5, generator=init)

    def forward(self, x: Tensor, embedding: Embedding, tokens: Tensor, previous: Tensor) -> Tensor:
        """Embeddings x (B, T, d_model) of tokens (B, T) that follow others -> the same size."""
        before = embedding(previous) * (previous != 0)[..., None]
        gate = (x * self.gate).sum(-1, keepdim=True).sigmoid()
        return x + self.strength * gate * before


class BigramEmbeddings(nn.Module):
    """A vector by a hash of the token and the one before, from a table that begins with zeros."""

    def __init__(self, rows: int, d_model: int, init: torch.Generator) -> None:
        super().__init__()
        self.table = Embedding(rows, d_model, init, scale=1.0)
        nn.init.zeros_(self.table.weight)

    def forward(self, x: Tensor, embedding: Embedding, tokens: Tensor, previous: Tensor) -> Tensor:
        """Embeddings x (B, T, d_model) of tokens (B, T) that follow others -> the same size."""
        rows = (tokens * _OF_TOKEN ^ previous * _OF_PREVIOUS) % len(self.table.weight)
        return x + self.table(rows)
