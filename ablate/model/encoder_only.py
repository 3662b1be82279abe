"""One stack that is not causal, as masked language models are built (BERT; Devlin et al., 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.builder import ModelBuilder
from ablate.model.layers import Linear
from ablate.model.stack import Layer, Stack, apply_encoder, encoder_context
from ablate.model.transformer import Transformer

# Columns added so that a product includes the bias: the bias, then zeros that keep the sizes
# multiples of 8.
_BIAS_COLUMNS = 8


class TokenTypes(nn.Module):
    """A learned vector for each token type. A single text is of the first type; the others stay
    unused.
    """

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
        self.linear = Linear(d_model, d_model, builder.init)
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
        self.encoder = Stack(
            Layer(layer, self.positions, causal=False) for layer in builder.layers(c.depths[0])
        )
        self.encoder_norm = builder.final_norm()
        self.token_types = (
            TokenTypes(c.token_types, c.d_model, builder.init) if c.token_types else nn.Identity()
        )
        self.embedding_norm = builder.norm() if c.embedding_norm else nn.Identity()
        self.output_transform = OutputTransform(builder) if c.output_transform else nn.Identity()
        self.output_bias = nn.Parameter(torch.zeros(builder.vocab_size)) if c.output_bias else None

    def read(self, tokens: Tensor) -> Tensor:
        """Read a sequence: token ids (B, T), padded with 0 at the end -> states (B, T, d_model)."""
        context = encoder_context(tokens, self.encoder)
        x = self.token_types(self.positions.embed(self.embedding(tokens), context.query_positions))
        x = self.embedding_dropout(self.embedding_norm(x))
        states: Tensor = self.encoder_norm(apply_encoder(self.encoder, x, self.positions, context))
        return states

    def output_states(self, states: Tensor) -> Tensor:
        """States (..., d_model) -> factors of `output_matrix`: the same width; with a bias, a one
        and 7 zeros more.
        """
        x: Tensor = self.output_transform(states)
        if self.output_bias is None:
            return x
        constant = F.one_hot(
            torch.zeros(x.shape[:-1], dtype=torch.int64, device=x.device), _BIAS_COLUMNS
        )
        return torch.cat([x, constant.to(x.dtype)], dim=-1)

    @property
    def output_matrix(self) -> Tensor:
        """The matrix (V, d_model) that turns `output_states` into logits; with a bias, (V, d_model
        + 8).
        """
        matrix = super().output_matrix
        if self.output_bias is None:
            return matrix
        return torch.cat([matrix, F.pad(self.output_bias[:, None], (0, _BIAS_COLUMNS - 1))], dim=1)

    def logits(self, states: Tensor) -> Tensor:
        """(..., d_model) -> (..., V)."""
        return F.linear(self.output_states(states), self.output_matrix)
