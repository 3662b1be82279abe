"""The context of an attention call: masks, positions, positional encoding, dropout and more."""

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
class EarlierActivations:
    """Activations of earlier layers, for layers that read them.

    In decoding, the tensors have the shape (B, K, ...), also where a layer has one row for each
    hypothesis and its x is (B * K, 1, ...).

    Attributes:
        embedded: the embeddings (B, T, d_model).
        tokens: token ids (B, T).
        states: the embeddings, then the output of each layer so far (B, T, d_model); only if later
            layers add them.
        values: the values of the first layer with a value residual (B, T, g * d_v); None before it.
    """

    embedded: Tensor
    tokens: Tensor
    states: list[Tensor] = field(default_factory=list)
    values: Tensor | None = None


@dataclass(frozen=True)
class AttentionContext:
    """Context of one attention call: masks, positions, bias, scale, dropout.

    Attributes:
        query_positions: position of each query in its sentence: (T,) if they are the same in all
            sentences, else (B, T).
        key_positions: position of each key: (S,) or (B, S).
        key_mask: (B, 1, 1, S), true at tokens, false at padding; None without padding.
        lengths: number of tokens of each sentence (B), on the CPU, for mixers with `needs_lengths`;
            None without padding.
        query_mask: (B, 1, T, S), true where a query may attend to a key; None if every query may
            attend to every key.
        causal: whether a query attends only to keys at its position and before. Padding at the end
            of a sentence then needs no mask, because it comes after every token.
        positional_encoding: the encoding of the stack; None in cross-attention.
        layer: index of the layer in its stack.
        scale: factor of the scores.
        dropout: dropout of the attention weights; None for none.
        on_weights: callback for the attention weights (B, h, T, S) before dropout. If None,
            attention may use a kernel that never forms them.
        score_cap: soft cap of the scores; None for none.
        sinks: scores (h,) that enter the denominator of each head's softmax, without a key; None
            for none.
        earlier: activations of earlier layers; None in an encoder-decoder.
        x: the input of the sub-layer (B, T, d_model), from which Q was projected; always set by
            `MultiHeadAttention`.
        own_values: the values of x (B, g, T, d_v) in self-attention; None in cross-attention.
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
    earlier: EarlierActivations | None = None
    x: Tensor | None = None
    own_values: Tensor | None = None

    def layer_context(self, layer: int, encoding: PositionalEncoding) -> AttentionContext:
        """The context of a layer, by its index and the positional encoding of its stack."""
        return self.replace(positional_encoding=encoding.layer_encoding(layer), layer=layer)

    def replace(self, **fields: Any) -> AttentionContext:
        """A copy with new values for some fields."""
        # Takes a tenth of the time of `dataclasses.replace`; each layer calls it twice.
        context = object.__new__(type(self))
        context.__dict__.update(self.__dict__, **fields)
        return context

    @property
    def is_plain(self) -> bool:
        """Whether attention is only softmax(scale * Q K^T) V with a mask."""
        if self.score_cap is not None or self.sinks is not None:
            return False
        biased = self.positional_encoding is not None and self.positional_encoding.acts_on_scores
        dropping = self.dropout is not None and self.dropout.rate > 0 and self.dropout.training
        return not biased and not dropping and self.on_weights is None

    def mask(self, window: int | None = None) -> Tensor | None:
        """Combine all masks: true where a query may attend to a key.

        Args:
            window: largest allowed distance in tokens, to either side; None for no limit.

        Returns:
            A tensor that broadcasts to (B, 1, T, S); None if every query may attend to every key.
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
        """Rotate queries, or keys of the same tokens, by the positional encoding: (B, h, T, d_k) ->
        (B, h, T, d_k).
        """
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
        """Attention weights of scores (B, h, T, S): cap, mask, softmax with sinks, dropout.

        A query that may attend to no key has uniform weights, not NaN.
        """
        scores = soft_cap(scores, self.score_cap)
        mask = self.mask(window)
        if mask is not None:
            # Not -inf, which would make the softmax of a fully masked row NaN.
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return self.drop(_softmax(scores, self.sinks))

    def drop(self, weights: Tensor) -> Tensor:
        """Pass attention weights (B, h, T, S) to `on_weights`, then apply dropout to them."""
        if self.on_weights is not None:
            self.on_weights(weights.detach())
        return weights if self.dropout is None else self.dropout(weights)

    def values(self, weights: Tensor) -> Tensor | None:
        """Values that the positional encoding adds to the heads (B, h, T, d_v), or None.

        Args:
            weights: attention weights (B, h, T, S).
        """
        if self.positional_encoding is None:
            return None
        return self.positional_encoding.values(
            self.layer, weights, self.query_positions, self.key_positions
        )


def _softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Softmax of scores (B, h, T, S). Sinks (h,) enter its denominator, but get no weight."""
    if sinks is None:
        return scores.softmax(-1)
    B, h, T, _ = scores.shape
    sink_column = sinks.to(scores.dtype)[:, None, None].expand(B, h, T, 1)
    return torch.cat([scores, sink_column], dim=-1).softmax(-1)[..., :-1]
