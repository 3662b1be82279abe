"""The interface of a model to training, decoding and scoring, for every architecture."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.kernels.cross_entropy import LossTerm, soft_cap
from ablate.model.builder import ModelBuilder
from ablate.model.decoding_cache import DecodingCache
from ablate.model.embeddings import TokenTypes, previous_tokens
from ablate.model.experts import MixtureOfExperts
from ablate.model.layers import ParameterKinds, optional, or_identity, zeros
from ablate.parts.initialization import factors

# Number of columns that an output bias adds to the output matrix: the bias and seven columns of
# zeros, because products are fast if sizes are multiples of 8.
_BIAS_COLUMNS = 8


class Transformer(nn.Module):
    """Base of all architectures: embeddings and output matrix. Subclasses add the stacks.

    Token 0 is padding. `forward` returns states, not logits, so that the loss can compute logits in
    chunks.
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
        self.loss_term: LossTerm | None = None  # the user's term of the loss; `Trainer` sets it

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute the decoder states of a batch (teacher forcing).

        Args:
            source: token ids (B, S), padded with 0 at the end.
            target: token ids (B, T), padded with 0 at the end.

        Returns:
            (B, T, d_model): the state at each target position, which predicts the next token.
        """
        raise NotImplementedError

    def read(self, tokens: Tensor) -> Tensor:
        """Read token ids (B, T), padded with 0 at the end -> states (B, T, d_model)."""
        raise NotImplementedError

    def read_ahead(self, tokens: Tensor) -> list[Tensor]:
        """The states of `read`, then the states of each head of future tokens."""
        return [self.read(tokens)]

    def start(self, source: Tensor, K: int) -> DecodingCache:
        """Start to decode at most K hypotheses for each of token ids (B, S), padded with 0."""
        raise NotImplementedError

    def step(self, tokens: Tensor, cache: Any) -> Tensor:
        """Decode one token of each hypothesis, without gradients: the cache grows in place.

        Args:
            tokens: the newest token of each hypothesis (B, K).
            cache: the cache from `start`, after all earlier tokens.

        Returns:
            (B, K, d_model).

        Raises:
            RuntimeError: the number of hypotheses of a sentence in the cache is neither K nor 1.
        """
        raise NotImplementedError

    def output_states(self, states: Tensor) -> Tensor:
        """Scale states (..., d_model) for the product with `output_matrix`.

        With an output bias, a 1 and 7 zeros are appended: (..., d_model + 8).
        """
        if self.logit_factor != 1.0:
            states = states * self.logit_factor
        if self.output_bias is None:
            return states
        index = torch.zeros(states.shape[:-1], dtype=torch.int64, device=states.device)
        constant = F.one_hot(index, _BIAS_COLUMNS)  # 1, 0, 0, ...
        return torch.cat([states, constant.to(states.dtype)], dim=-1)

    @property
    def output_matrix(self) -> Tensor:
        """The matrix (V, d_model) that projects `output_states` to logits: the embedding if tied
        (3.4). With an output bias it is (V, d_model + 8).
        """
        matrix = (self.output or self.embedding).weight
        if self.output_bias is None:
            return matrix
        return torch.cat([matrix, F.pad(self.output_bias[:, None], (0, _BIAS_COLUMNS - 1))], dim=1)

    def logits(self, states: Tensor) -> Tensor:
        """(..., d_model) -> (..., V)."""
        logits = F.linear(self.output_states(states), self.output_matrix)
        return soft_cap(logits, self.config.logit_cap)

    def pop_balance_loss(self) -> Tensor | float:
        """The sum of the balance losses of all mixtures of experts, which are then reset to 0."""
        total: Tensor | float = 0.0
        for mixture in self._mixtures:
            total = total + mixture.balance_loss
            mixture.balance_loss = 0.0  # its graph must not outlive the step
        return total

    @cached_property
    def _mixtures(self) -> list[MixtureOfExperts]:
        # Cached, because a walk over all modules in each micro-batch would take time.
        return [module for module in self.modules() if isinstance(module, MixtureOfExperts)]

    @property
    def random(self) -> torch.Generator:
        """The generator of all dropout masks."""
        return self.embedding_dropout.random


class SingleStack(Transformer):
    """Base of the architectures with one stack, with the modules that act on embeddings."""

    def __init__(self, builder: ModelBuilder, causal: bool) -> None:
        super().__init__(builder)
        self.positions = builder.positions(causal)

    def _add_embedding_parts(self, builder: ModelBuilder) -> None:
        """Make the modules that act on embeddings. A subclass calls this after making its stack,
        because weights are drawn in the order of the calls.
        """
        c = builder.config
        types = partial(TokenTypes, c.token_types, c.d_model, builder.init)
        self.token_types = or_identity(c.token_types, types)
        first = builder.layer_builder(c.all_layers[0])
        self.embedding_norm = or_identity(c.embedding_norm, first.norm)
        self.token_pairs = builder.token_pairs()
        self.layer_skips = builder.layer_skips()

    def embed(self, tokens: Tensor, positions: Tensor, previous: Tensor | None = None) -> Tensor:
        """Token ids (B, T) at positions (T,) or (B, T) -> (B, T, d_model).

        `previous` (B, T) has the token before each token; None if `tokens` are whole sequences.
        """
        x = self.embedding(tokens)
        if previous is None and self.token_pairs:
            previous = previous_tokens(tokens)
        for token_pair in self.token_pairs:
            x = token_pair(x, self.embedding, tokens, previous)
        embedded: Tensor = self.embedding_norm(self.token_types(self.positions.embed(x, positions)))
        return embedded

    def expand_streams(self, x: Tensor) -> Tensor:
        """Copy embeddings to all residual streams: (B, T, d_model) -> (B, T, streams * d_model)."""
        return x.repeat(1, 1, self.config.streams) if self.config.streams else x

    def sum_streams(self, x: Tensor) -> Tensor:
        """Sum the residual streams: (B, T, streams * d_model) -> (B, T, d_model)."""
        return x.unflatten(-1, (self.config.streams, -1)).sum(-2) if self.config.streams else x
