"""What training, decoding and scoring know of a model, whatever its architecture."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.parts import Parts


class Cache(Protocol):
    """What decoding step by step has behind it, for B sentences of K hypotheses each."""

    def select(self, stay: Tensor, origins: Tensor) -> None:
        """Go on with some sentences, and in each with some of its hypotheses.

        Args:
            stay: the sentences, among the B that there are (B').
            origins: for every one of the B sentences, the hypotheses that go on (B, K).
        """


class Transformer(nn.Module):
    """Embeddings, and the product with the vocabulary; an architecture is what stands between.

    Token 0 is padding. `forward` returns states rather than logits, so that the loss can take the
    product with the vocabulary in pieces.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.config = parts.config
        self.embedding = parts.embedding()
        self.embedding_dropout = parts.dropout()
        self.output = parts.embedding() if parts.config.tied_embeddings == "none" else None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Token ids (B, S) and (B, T), padded with 0 at the end -> states of the target's places (B, T, d_model)."""
        raise NotImplementedError

    def start(self, source: Tensor, K: int) -> Cache:
        """Token ids (B, S), padded with 0 at the end -> what decoding K hypotheses a sentence begins with."""
        raise NotImplementedError

    def step(self, tokens: Tensor, cache: Any) -> Tensor:
        """One decoding step: tokens (B, K) after those that the cache knows -> states (B, K, d_model)."""
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


def rows_of(stay: Tensor, origins: Tensor) -> Tensor:
    """The rows, of B * K, of the hypotheses that go on; arguments as for Cache.select."""
    return (stay[:, None] * origins.shape[1] + origins[stay]).flatten()
