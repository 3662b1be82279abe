"""The interface of a model to training, decoding and scoring, for every architecture."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.kernels.cross_entropy import LossTerm, soft_cap
from ablate.model.builder import ModelBuilder
from ablate.model.decoding_cache import DecodingCache
from ablate.model.experts import MixtureOfExperts
from ablate.model.layers import ParameterKinds, optional, zeros
from ablate.parts.initialization import factors

# So that a product includes the bias: it, then zeros up to a multiple of 8.
_BIAS_COLUMNS = 8


class Transformer(nn.Module):
    """Base of all architectures: embeddings and output matrix; the stacks between them are those of
    a subclass.

    Token 0 is padding. `forward` returns states rather than logits, so that the loss can make the
    logits in pieces.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"output_bias": "bias"}

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__()
        self.config = builder.config
        self.logit_factor = factors(builder.config).logits
        self.embedding = builder.embedding()
        self.embedding_dropout = builder.dropout()
        self.output = optional(builder.config.tied_embeddings == "none", builder.embedding)
        self.output_bias = optional(builder.config.output_bias, zeros, builder.vocab_size)
        self.loss_term: LossTerm | None = None  # of the user, in training

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
        """Read token ids (B, T), padded with 0 at the end -> states (B, T, d_model)."""
        raise NotImplementedError

    def read_ahead(self, tokens: Tensor) -> list[Tensor]:
        """The states of `read`, then those of each head of future tokens."""
        return [self.read(tokens)]

    def start(self, source: Tensor, K: int) -> DecodingCache:
        """Start to decode at most K hypotheses for each of token ids (B, S), padded with 0."""
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

    def opened(self, x: Tensor) -> Tensor:
        """Embeddings (B, T, d_model) -> the residual stream, or its copies (B, T, n * d_model)."""
        return x.repeat(1, 1, self.config.streams) if self.config.streams else x

    def closed(self, x: Tensor) -> Tensor:
        """The residual stream after the layers, or the sum of several: (B, T, d_model)."""
        return x.unflatten(-1, (self.config.streams, -1)).sum(-2) if self.config.streams else x

    def output_states(self, states: Tensor) -> Tensor:
        """States (..., d_model) -> factors of `output_matrix`; with a bias, 1 and 7 zeros more."""
        if self.logit_factor != 1.0:
            states = states * self.logit_factor
        if self.output_bias is None:
            return states
        first = torch.zeros(states.shape[:-1], dtype=torch.int64, device=states.device)
        constant = F.one_hot(first, _BIAS_COLUMNS)
        return torch.cat([states, constant.to(states.dtype)], dim=-1)

    @property
    def output_matrix(self) -> Tensor:
        """The matrix (V, d_model) that turns `output_states` into logits: the embedding (3.4),
        unless untied; with a bias, (V, d_model + 8).
        """
        matrix = (self.output or self.embedding).weight
        if self.output_bias is None:
            return matrix
        return torch.cat([matrix, F.pad(self.output_bias[:, None], (0, _BIAS_COLUMNS - 1))], dim=1)

    def logits(self, states: Tensor) -> Tensor:
        """(..., d_model) -> (..., V)."""
        logits = F.linear(self.output_states(states), self.output_matrix)
        return soft_cap(logits, self.config.logit_cap)

    def balance_loss(self) -> Tensor | float:
        """How unevenly tokens were sent to experts since the last call, weighted; then 0."""
        total: Tensor | float = 0.0
        for mixture in self._mixtures:
            total = total + mixture.balance_loss
            mixture.balance_loss = 0.0  # its graph must not outlive the step
        return total

    @cached_property
    def _mixtures(self) -> list[MixtureOfExperts]:
        # Looked for once: a walk over all modules in each micro-batch costs models without any.
        return [module for module in self.modules() if isinstance(module, MixtureOfExperts)]

    @property
    def random(self) -> torch.Generator:
        """The generator of all dropout masks."""
        return self.embedding_dropout.random
