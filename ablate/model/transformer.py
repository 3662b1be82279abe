"""What training, decoding and scoring know of a model, whatever its architecture."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.cache import Cache
from ablate.model.parts import ModelBuilder


class Transformer(nn.Module):
    """Embeddings, and the product with the vocabulary; an architecture is what stands between.

    Token 0 is padding. `forward` returns states rather than logits, so that the loss can take the
    product with the vocabulary in pieces.
    """

    def __init__(self, parts: ModelBuilder) -> None:
        super().__init__()
        self.config = parts.config
        self.embedding = parts.embedding()
        self.embedding_dropout = parts.dropout()
        self.output = parts.embedding() if parts.config.tied_embeddings == "none" else None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Token ids (B, S) and (B, T), padded with 0 at the end -> states of the target's places (B, T, d_model)."""
        raise NotImplementedError

    def start(self, source: Tensor, K: int) -> Cache:
        """Token ids (B, S), padded with 0 at the end -> what decoding at most K hypotheses a sentence begins with."""
        raise NotImplementedError

    def step(self, tokens: Tensor, cache: Any) -> Tensor:
        """One decoding step: tokens (B, K) after those that the cache knows -> states (B, K, d_model).

        Without gradients: what the cache keeps grows in its place.

        Raises:
            RuntimeError: the cache was left with other than K hypotheses, and not with a single one.
        """
        raise NotImplementedError

    @property
    def output_matrix(self) -> Tensor:
        """What states are multiplied by to give logits, (V, d_model): the embedding (3.4), unless untied."""
        return self.embedding.weight if self.output is None else self.output.weight

    def logits(self, states: Tensor) -> Tensor:
        """(..., d_model) -> (..., V)."""
        return F.linear(states, self.output_matrix)

    @property
    def random(self) -> torch.Generator:
        """The generator of all dropout masks."""
        return self.embedding_dropout.random
