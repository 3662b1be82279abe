"""One stack that is not causal, as masked language models are built (BERT; Devlin et al., 2019)."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from ablate.model.attention_context import Earlier
from ablate.model.builder import ModelBuilder
from ablate.model.layers import Linear, ParameterKinds, or_identity
from ablate.model.stack import Stack, apply_encoder, encoder_context, layer_of_one_stack
from ablate.model.token_pairs import previous_tokens
from ablate.model.transformer import Transformer


class TokenTypes(nn.Module):
    """A learned vector for each token type, of which a single text has the first."""

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
        make = partial(layer_of_one_stack, causal=False)
        self.encoder = Stack.of(builder, c.depths[0], self.positions, make)
        self.encoder_norm = builder.final_norm(c.depths[0])
        types = partial(TokenTypes, c.token_types, c.d_model, builder.init)
        self.token_types = or_identity(c.token_types, types)
        first = builder.of_layer(c.all_layers[0])
        last = builder.of_layer(c.all_layers[-1])
        self.embedding_norm = or_identity(c.embedding_norm, first.norm)
        self.token_pairs = builder.token_pairs()
        self.layer_skips = builder.layer_skips()
        self.output_transform = or_identity(c.output_transform, partial(OutputTransform, last))

    def read(self, tokens: Tensor) -> Tensor:
        """Read a sequence: token ids (B, T), padded with 0 at the end -> states (B, T, d_model)."""
        context = encoder_context(tokens, self.encoder)
        x = self.embedding(tokens)
        for part in self.token_pairs:
            x = part(x, self.embedding, tokens, previous_tokens(tokens))
        x = self.token_types(self.positions.embed(x, context.query_positions))
        x = self.opened(self.embedding_dropout(self.embedding_norm(x)))
        context = context.changed(earlier=Earlier(x, tokens, [x]))
        x = apply_encoder(self.encoder, x, self.positions, context, self.layer_skips)
        states: Tensor = self.encoder_norm(self.closed(x))
        return states

    def output_states(self, states: Tensor) -> Tensor:
        """States (..., d_model) -> factors of `output_matrix`, after the transform."""
        return super().output_states(self.output_transform(states))
