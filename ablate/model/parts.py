"""From a configuration to the parts that a model is made of: each variant is looked up here, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from ablate.config import ModelConfig
from ablate.config.plugins import parse_reference, without_digest
from ablate.errors import StudyError
from ablate.model.attention import MultiHeadAttention
from ablate.model.feed_forward import ACTIVATIONS, Activation, FeedForward
from ablate.model.layers import Dropout, Embedding
from ablate.model.mechanisms import MECHANISMS, Full, Mechanism
from ablate.model.norms import NORMS, PostNorm, PreNorm
from ablate.model.plugins import load
from ablate.model.positions import POSITIONS, PositionalEncoding
from ablate.model.recurrence import LSTM
from ablate.model.token_mixer import TokenMixer

Part = TypeVar("Part", bound=nn.Module)


class ModelBuilder:
    """Makes the parts of one model, drawing their weights one after another."""

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        init: torch.Generator,
        random: torch.Generator,
        sources: Path | None = None,
    ) -> None:
        """What all parts have in common.

        Args:
            config: the shape.
            vocab_size: V.
            init: draws the initial weights; on the CPU, so that every device starts from the same ones.
            random: draws dropout masks; on the device that the model will run on.
            sources: where the run keeps the sources of the user's own variants.
        """
        self.config, self.vocab_size, self.init, self.random, self.sources = config, vocab_size, init, random, sources

    def embedding(self) -> Embedding:
        """A matrix of V vectors."""
        return Embedding(self.vocab_size, self.config.d_model, self.init)

    def dropout(self) -> Dropout:
        """Dropout at P_drop."""
        return Dropout(self.config.dropout, self.random)

    def positions(self, causal: bool) -> PositionalEncoding:
        """What a stack of layers knows of order."""
        return self._variant(
            "positional_encoding", POSITIONS, PositionalEncoding, self.config, causal=causal, init=self.init
        )

    def mixer(self, positions: PositionalEncoding) -> TokenMixer:
        """Self-attention among the tokens of one stack, whose positional encoding acts in it."""
        mechanism = self._variant("attention", MECHANISMS, Mechanism, self.config)
        if positions.biases and not mechanism.takes_bias:
            raise StudyError(
                f"attention={without_digest(self.config.attention)} adds no bias to its scores (takes_bias is False), "
                f"which positional_encoding={without_digest(self.config.positional_encoding)} needs"
            )
        return MultiHeadAttention(self.config, self.config.n_heads, mechanism, self.init, self.random)

    def recurrence(self, causal: bool) -> TokenMixer:
        """An LSTM in the place of self-attention."""
        return LSTM(self.config.d_model, causal, self.init)

    def cross_attention(self) -> MultiHeadAttention:
        """Attention over the source."""
        return MultiHeadAttention(self.config, self.config.cross_heads, Full(self.config), self.init, self.random)

    def feed_forward(self) -> FeedForward:
        """The position-wise network."""
        activation = self._variant("activation", ACTIVATIONS, Activation)
        return FeedForward(self.config, activation, self.init, self.random)

    def norm(self) -> nn.Module:
        """A normalisation, or nothing in its place."""
        if self.config.norm_position == "none":
            return nn.Identity()
        return self._variant("norm", NORMS, nn.Module, self.config.d_model)

    def around(self) -> PostNorm:
        """Residual, dropout and norm around a sub-layer."""
        make = PreNorm if self.config.norm_position == "pre" else PostNorm
        return make(self.norm(), self.config.residual, self.config.dropout, self.random)

    def last_norm(self) -> nn.Module:
        """What a stack ends with: a norm where sub-layers have theirs before them, else nothing."""
        return self.norm() if self.config.norm_position == "pre" else nn.Identity()

    def _variant(
        self, field: str, table: Mapping[str, Callable[..., Part]], interface: type[Part], *given: Any, **named: Any
    ) -> Part:
        """What a field names, made with these arguments."""
        value = getattr(self.config, field)
        found = parse_reference(value)
        if found is None:
            return table[value](*given, **named)
        assert self.sources is not None, f"{field}={value} needs its source"
        own = load(found, self.sources, interface)
        with torch.random.fork_rng(devices=()):  # what it draws by torch's own generator follows from the seed, too
            torch.manual_seed(int(torch.randint(2**62, (), generator=self.init)))
            return own(*given, **named)
