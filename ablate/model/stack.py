"""A stack of layers (section 3.1, figure 1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from ablate.model.attention_context import AttentionContext
from ablate.model.builder import ModelBuilder
from ablate.model.kv_cache import KeyValues
from ablate.model.positions import PositionalEncoding


class Layer(nn.Module):
    """Self-attention, or another token mixer, then the feed-forward network: a layer of an encoder."""

    def __init__(self, builder: ModelBuilder, positions: PositionalEncoding, causal: bool) -> None:
        super().__init__()
        self.mixer = builder.token_mixer(positions, causal)
        self.around_mixer = builder.residual()
        self._add_sublayers(builder)
        self.feed_forward = builder.feed_forward()
        self.around_feed_forward = builder.residual()

    def _add_sublayers(self, builder: ModelBuilder) -> None:
        """Make the sub-layers of a subclass; called between the two, which fixes the order of their initial draws."""

    def apply_mixer(self, x: Tensor, past: Any, context: AttentionContext) -> tuple[Tensor, Any]:
        """The token mixer and its residual: (B, T, d_model) -> (B, T, d_model), and the mixer's state."""
        mixed, state = self.mixer(self.around_mixer.before(x), past, context)
        return self.around_mixer.after(x, mixed), state

    def apply_feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward network and its residual: (B, T, d_model) -> (B, T, d_model)."""
        return self.around_feed_forward.after(x, self.feed_forward(self.around_feed_forward.before(x)))


class DecoderLayer(Layer):
    """Masked self-attention, attention over the source, then the feed-forward network."""

    def __init__(self, builder: ModelBuilder, positions: PositionalEncoding) -> None:
        super().__init__(builder, positions, causal=True)

    def _add_sublayers(self, builder: ModelBuilder) -> None:
        self.cross_attention = builder.cross_attention()
        self.around_cross_attention = builder.residual()

    def apply_cross_attention(self, x: Tensor, memory: KeyValues, context: AttentionContext) -> Tensor:
        """Attention over the source and its residual: (B, T, d_model) -> (B, T, d_model)."""
        around = self.around_cross_attention
        return around.after(x, self.cross_attention.cross_attend(around.before(x), memory, context))


LayerType = TypeVar("LayerType", bound=Layer)


class Stack(nn.ModuleList, Generic[LayerType]):
    """Layers of one type, applied one after another."""

    def __init__(self, layers: Iterator[LayerType]) -> None:
        super().__init__(layers)

    def __iter__(self) -> Iterator[LayerType]:
        return super().__iter__()  # type: ignore[return-value]
