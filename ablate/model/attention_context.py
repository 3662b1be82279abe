"""What queries see of keys: which of them, at what distance, and what happens to the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.model.layers import Dropout
from ablate.model.positions import PositionalEncoding


@dataclass(frozen=True)
class AttentionContext:
    """The surroundings of one attention: everything that it needs to know but Q, K and V.

    keys, queries: the places of tokens in their sentence, (S,) and (T,) where all sentences agree, else (B, S), (B, T).
    real: (B, 1, 1, S), true where a key is a token and not padding; None where all are.
    seen: (B, 1, T, S), true where a query may see a key wherever it stands; None where it may see all.
    causal: a query sees keys up to its own place. Padding at the end is then behind every token, and needs no mask.
    order: the positional encoding, for what it does inside attention; None in attention over another sequence.
    layer: which layer asks.
    scale: what scores are multiplied by.
    dropout: on the weights; None for none.
    watch: is shown the weights, (B, h, T, S).
    """

    queries: Tensor
    keys: Tensor
    real: Tensor | None = None
    seen: Tensor | None = None
    causal: bool = False
    order: PositionalEncoding | None = None
    layer: int = 0
    scale: float = 1.0
    dropout: Dropout | None = None
    watch: Callable[[Tensor], None] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether all there is to it is softmax(scale * Q K^T) V with a mask."""
        biased = self.order is not None and self.order.biases
        dropping = self.dropout is not None and self.dropout.rate > 0 and self.dropout.training
        return not biased and not dropping and self.watch is None

    def allowed(self, window: int | None = None) -> Tensor | None:
        """(B, 1, T, S) or what broadcasts to it, true where a query may attend to a key; None where all may.

        Args:
            window: tokens at either side that are within reach; None for all.
        """
        allowed = self.real if self.seen is None else self.seen if self.real is None else self.seen & self.real
        if self.causal or window is not None:
            distance = (self.queries[..., :, None] - self.keys[..., None, :]).unsqueeze(-3)  # (1, T, S) or (B, 1, T, S)
            near = distance.abs() <= window if window is not None else torch.ones_like(distance, dtype=torch.bool)
            near = near & (distance >= 0) if self.causal else near
            allowed = near if allowed is None else allowed & near
        return allowed

    def bias(self, Q: Tensor) -> Tensor | None:
        """What the positional encoding adds to the scores of scaled queries (B, h, T, d_k): (B, h, T, S) or None."""
        return None if self.order is None else self.order.bias(self.layer, Q, self.queries, self.keys)

    def weights(self, scores: Tensor, window: int | None = None) -> Tensor:
        """Masked softmax of scores (B, h, T, S), with dropout; rows without any allowed key are uniform, never NaN."""
        allowed = self.allowed(window)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        return self.shown(scores.softmax(-1))

    def shown(self, weights: Tensor) -> Tensor:
        """The weights, shown to whoever watches, with dropout."""
        if self.watch is not None:
            self.watch(weights.detach())
        return self.dropout(weights) if self.dropout is not None else weights

    def values(self, weights: Tensor) -> Tensor | None:
        """What the positional encoding adds to the heads under these weights: (B, h, T, d_v) or None."""
        return None if self.order is None else self.order.values(self.layer, weights, self.queries, self.keys)
