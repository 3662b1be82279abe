"""The encoder-only architecture of masked language models (BERT; Devlin et al., 2019)."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from ablate.model.attention_context import EarlierActivations
from ablate.model.builder import ModelBuilder
from ablate.model.layers import Linear, or_identity
from ablate.model.stack import Stack, apply_encoder, encoder_context, single_stack_layer
from ablate.model.transformer import SingleStack


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


class EncoderOnly(SingleStack):
    """A single stack in which every token attends to all others."""

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__(builder, causal=False)
        c = builder.config
        make = partial(single_stack_layer, causal=False)
        self.encoder = Stack.build(builder, c.depths[0], self.positions, make)
        self.encoder_norm = builder.final_norm(c.depths[0])
        self._add_embedding_parts(builder)
        last = builder.layer_builder(c.all_layers[-1])
        self.output_transform = or_identity(c.output_transform, partial(OutputTransform, last))

    def read(self, tokens: Tensor) -> Tensor:
        """Read a sequence: token ids (B, T), padded with 0 at the end -> states (B, T, d_model)."""
        context = encoder_context(tokens, self.encoder)
        x = self.embedding_dropout(self.embed(tokens, context.query_positions))
        x = self.expand_streams(x)
        context = context.replace(earlier=EarlierActivations(x, tokens, [x]))
        x = apply_encoder(self.encoder, x, self.positions, context, self.layer_skips)
        states: Tensor = self.encoder_norm(self.sum_streams(x))
        return states

    def output_states(self, states: Tensor) -> Tensor:
        """As in `Transformer`, after the output transform."""
        return super().output_states(self.output_transform(states))
