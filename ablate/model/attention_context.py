"""The context of an attention call, and the mask and the weights that follow from it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ablate.kernels.cross_entropy import soft_cap
from ablate.model.layers import Dropout
from ablate.model.positions import PositionalEncoding


@dataclass
class Earlier:
    """What layers read beside the stream, of the same positions.

    In decoding with a row for each hypothesis, a layer has (B * K, 1) positions for (B, K).

    Attributes:
        embedded: the embeddings (B, T, d_model).
        tokens: their ids (B, T).
        states: of the layers so far (B, T, d_model), the embeddings first, where later ones add
            them.
        values: of the first layer with a value residual (B, T, g * d_v); None before it.
    """

    embedded: Tensor
    tokens: Tensor
    states: list[Tensor] = field(default_factory=list)
    values: Tensor | None = None


@dataclass(frozen=True)
class AttentionContext:
    """Context of one attention call: masks, positions, bias, scale, dropout.

    Attributes:
        query_positions: position of each query in its sentence, (T,) where all sentences agree,
            else (B, T).
        key_positions: position of each key, (S,) or (B, S).
        key_mask: (B, 1, 1, S), true at tokens and false at padding; None where no sentence is
            padded.
        lengths: tokens of each sentence (B), on the CPU, for mixers that need them; None where no
            sentence is padded.
        query_mask: (B, 1, T, S), true where a query may attend to a key; None where every query may
            attend to all.
        causal: whether a query attends only to keys up to its own position. Padding at the end of a
            sentence is then behind every token, and needs no mask.
        positional_encoding: that of the stack, which may act inside attention; None in attention
            over another sequence.
        layer: index of the layer in its stack.
        scale: factor of the scores.
        dropout: of the attention weights; None for no dropout.
        on_weights: called with the weights (B, h, T, S) before dropout; None to leave them unformed
            where possible.
        score_cap: soft cap of the scores; None for none.
        sinks: a score of each head (h,) that is in the sum of its softmax without a key; None for
            none.
        earlier: what a layer of a single stack may read beside the stream; None in an
            encoder-decoder.
        x: the input of the sub-layer (B, T, d_model), of which Q are the queries; in the attention
            of a model never None.
        own_values: the values of x (B, g, T, d_v) in self-attention; None in attention over another
            sequence.
    """

    query_positions: Tensor
    key_positions: Tensor
    key_mask: Tensor | None = None
    query_mask: Tensor | None = None
    causal: bool = False
    positional_encoding: PositionalEncoding | None = None
    layer: int = 0
    scale: float = 1.0
    dropout: Dropout | None = None
    on_weights: Callable[[Tensor], None] | None = None
    lengths: Tensor | None = None
    score_cap: float | None = None
    sinks: Tensor | None = None
    earlier: Earlier | None = None
    x: Tensor | None = None
    own_values: Tensor | None = None

    def in_layer(self, layer: int, encoding: PositionalEncoding) -> AttentionContext:
        """The context in a layer, by its index, with the positional encoding of its stack."""
        return self.changed(positional_encoding=encoding.of_layer(layer), layer=layer)

    def changed(self, **fields: Any) -> AttentionContext:
        """The context with other values of some fields."""
        # A tenth of the time of `dataclasses.replace`, which each layer would take twice.
        context = object.__new__(type(self))
        context.__dict__.update(self.__dict__, **fields)
        return context

    @property
    def is_plain(self) -> bool:
        """Whether attention is softmax(scale * Q K^T) V with a mask, and nothing more."""
        if self.score_cap is not None or self.sinks is not None:
            return False
        biased = self.positional_encoding is not None and self.positional_encoding.acts_on_scores
        dropping = self.dropout is not None and self.dropout.rate > 0 and self.dropout.training
        return not biased and not dropping and self.on_weights is None

    def mask(self, window: int | None = None) -> Tensor | None:
        """The mask of all conditions together, true where a query may attend to a key.

        Args:
            window: distance in tokens, to either side, beyond which a query does not attend; None
                for no limit.

        Returns:
            A tensor that broadcasts to (B, 1, T, S); None where every query may attend to every
            key.
        """
        masks = [mask for mask in (self.query_mask, self.key_mask) if mask is not None]
        if self.causal or window is not None:
            # Rows are queries, columns are keys: (1, T, S) or (B, 1, T, S).
            distance = self.query_positions[..., :, None] - self.key_positions[..., None, :]
            distance = distance.unsqueeze(-3)
            if window is not None:
                masks.append(distance.abs() <= window)
            if self.causal:
                masks.append(distance >= 0)
        return functools.reduce(operator.and_, masks) if masks else None

    def rotate(self, heads: Tensor) -> Tensor:
        """Queries, or keys at their positions, (B, h, T, d_k) -> the same with their positions."""
        if self.positional_encoding is None:
            return heads
        return self.positional_encoding.rotate(heads, self.query_positions).to(heads.dtype)

    def bias(self, Q: Tensor) -> Tensor | None:
        """The bias that the positional encoding adds to the scores of scaled queries.

        Args:
            Q: queries times `scale` (B, h, T, d_k).

        Returns:
            A tensor that broadcasts to (B, h, T, S), or None.
        """
        if self.positional_encoding is None:
            return None
        return self.positional_encoding.bias(
            self.layer, Q, self.query_positions, self.key_positions
        )

    def weights(self, scores: Tensor, window: int | None = None) -> Tensor:
        """Masked softmax of scores (B, h, T, S); uniform, never NaN, where a query has no key."""
        scores = soft_cap(scores, self.score_cap)
        mask = self.mask(window)
        if mask is not None:
            # Not -inf: a row without any key, as in padding, would be NaN after the softmax.
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return self.drop(_softmax(scores, self.sinks))

    def drop(self, weights: Tensor) -> Tensor:
        """Pass attention weights (B, h, T, S) to the observer, then apply dropout to them."""
        if self.on_weights is not None:
            # Before dropout, which would show zeros where the head attends.
            self.on_weights(weights.detach())
        return weights if self.dropout is None else self.dropout(weights)

    def values(self, weights: Tensor) -> Tensor | None:
        """What the positional encoding adds to heads (B, h, T, d_v) for weights (B, h, T, S)."""
        if self.positional_encoding is None:
            return None
        return self.positional_encoding.values(
            self.layer, weights, self.query_positions, self.key_positions
        )


def _softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """The softmax of scores (B, h, T, S), in whose sum a score of each head (h,) may be."""
    if sinks is None:
        return scores.softmax(-1)
    B, h, T, _ = scores.shape
    without_key = sinks.to(scores.dtype)[:, None, None].expand(B, h, T, 1)
    return torch.cat([scores, without_key], dim=-1).softmax(-1)[..., :-1]
