"""The encoder-only architecture of masked language models (BERT; Devlin et al., 2019)."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from ablate.model.attention_context import EarlierActivations
from ablate.model.builder import ModelBuilder
from ablate.model.layers import Linear, ParameterKinds, or_identity
from ablate.model.stack import Stack, apply_encoder, encoder_context, single_stack_layer
from ablate.model.token_pairs import previous_tokens
from ablate.model.transformer import Transformer


class TokenTypes(nn.Module):
    """A learned vector for each token type. All tokens of a single text have the first type."""

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "embedding"}

    def __init__(self, types: int, d_model: int, init: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(types, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5, generator=init)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        return x + self.weight[0]


class OutputTransform(nn.Module):
    """Linear layer, activation and norm before the output matrix."""

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__()
        d_model = builder.config.d_model
        has_bias = builder.config.output_transform is True
        self.linear = Linear(d_model, d_model, builder.init, has_bias)
        self.activation = builder.activation()
        self.norm = builder.norm()

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., d_model)."""
        out: Tensor = self.norm(self.activation(self.linear(x)))
        return out


class EncoderOnly(Transformer):
    """A single stack in which every token attends to all others."""

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__(builder)
        c = builder.config
        self.positions = builder.positions(causal=False)
        make = partial(single_stack_layer, causal=False)
        self.encoder = Stack.build(builder, c.depths[0], self.positions, make)
        self.encoder_norm = builder.final_norm(c.depths[0])
        types = partial(TokenTypes, c.token_types, c.d_model, builder.init)
        self.token_types = or_identity(c.token_types, types)
        first = builder.layer_builder(c.all_layers[0])
        last = builder.layer_builder(c.all_layers[-1])
        self.embedding_norm = or_identity(c.embedding_norm, first.norm)
        self.token_pairs = builder.token_pairs()
        self.layer_skips = builder.layer_skips()
        self.output_transform = or_identity(c.output_transform, partial(OutputTransform, last))

    def read(self, tokens: Tensor) -> Tensor:
        """Read a sequence: token ids (B, T), padded with 0 at the end -> states (B, T, d_model)."""
        context = encoder_context(tokens, self.encoder)
        x = self.embedding(tokens)
        for token_pair in self.token_pairs:
            x = token_pair(x, self.embedding, tokens, previous_tokens(tokens))
        x = self.token_types(self.positions.embed(x, context.query_positions))
        x = self.expand_streams(self.embedding_dropout(self.embedding_norm(x)))
        context = context.replace(earlier=EarlierActivations(x, tokens, [x]))
        x = apply_encoder(self.encoder, x, self.positions, context, self.layer_skips)
        states: Tensor = self.encoder_norm(self.sum_streams(x))
        return states

    def output_states(self, states: Tensor) -> Tensor:
        """Transform states (..., d_model) for the product with `output_matrix`."""
        return super().output_states(self.output_transform(states))
