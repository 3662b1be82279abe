"""The interface of a model to training, decoding and scoring, for every architecture."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.builder import ModelBuilder
from ablate.model.decoding_cache import DecodingCache


class Transformer(nn.Module):
    """Base of all architectures: embeddings and output matrix; the stacks between them are those of
    a subclass.

    Token 0 is padding. `forward` returns states rather than logits, so that the loss can make the
    logits in pieces.
    """

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__()
        self.config = builder.config
        self.embedding = builder.embedding()
        self.embedding_dropout = builder.dropout()
        self.output = builder.embedding() if builder.config.tied_embeddings == "none" else None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute the decoder states of a batch (teacher forcing).

        Args:
            source: token ids (B, S), padded with 0 at the end.
            target: token ids (B, T), padded with 0 at the end.

        Returns:
            (B, T, d_model): the state at each target position, from which the next token is
                predicted.
        """
        raise NotImplementedError

    def read(self, tokens: Tensor) -> Tensor:
        """Read one sequence, as language models do: (B, T), padded with 0 at the end -> states (B,
        T, d_model).
        """
        raise NotImplementedError

    def start(self, source: Tensor, K: int) -> DecodingCache:
        """Start to decode at most K hypotheses for each sentence of token ids (B, S), padded with 0
        at the end.
        """
        raise NotImplementedError

    def step(self, tokens: Tensor, cache: Any) -> Tensor:
        """Decode one token of each hypothesis, without gradients: the cache grows in place.

        Args:
            tokens: the newest token of each hypothesis (B, K).
            cache: from `start`, with all tokens before those.

        Returns:
            (B, K, d_model).

        Raises:
            RuntimeError: the cache has neither K hypotheses nor a single one.
        """
        raise NotImplementedError

    @property
    def output_matrix(self) -> Tensor:
        """The matrix (V, d_model) that turns states into logits: the embedding (3.4), unless
        untied.
        """
        return self.embedding.weight if self.output is None else self.output.weight

    def logits(self, states: Tensor) -> Tensor:
        """(..., d_model) -> (..., V)."""
        return F.linear(states, self.output_matrix)

    @property
    def random(self) -> torch.Generator:
        """The generator of all dropout masks."""
        return self.embedding_dropout.random
