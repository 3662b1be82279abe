"""One layer of a stack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from ablate.model.attention_context import AttentionContext
from ablate.model.parts import ModelBuilder
from ablate.model.positions import PositionalEncoding


class Layer(nn.Module):
    """Self-attention (or what stands in its place), then the feed-forward network: an encoder's layer (3.1)."""

    def __init__(self, parts: ModelBuilder, positions: PositionalEncoding, causal: bool) -> None:
        super().__init__()
        self.mixer = parts.recurrence(causal) if parts.config.mixer == "lstm" else parts.mixer(positions)
        self.around_mixer = parts.around()
        self._make_between(parts)
        self.feed_forward = parts.feed_forward()
        self.around_feed_forward = parts.around()

    def _make_between(self, parts: ModelBuilder) -> None:
        """Sub-layers that a kind of layer has between its two, drawn in their place."""

    def mix(self, x: Tensor, past: Any, sight: AttentionContext) -> tuple[Tensor, Any]:
        """Mix the sequence with itself and its past: (B, T, d_model) -> (B, T, d_model), and what it leaves."""
        mixed, left = self.mixer(self.around_mixer.before(x), past, sight)
        return self.around_mixer.after(x, mixed), left

    def feed(self, x: Tensor) -> Tensor:
        """The feed-forward network: (B, T, d_model) -> (B, T, d_model)."""
        around = self.around_feed_forward
        return around.after(x, self.feed_forward(around.before(x)))


Kind = TypeVar("Kind", bound=Layer)


class Stack(nn.ModuleList, Generic[Kind]):
    """Layers of one kind, one on top of another."""

    def __init__(self, layers: Iterator[Kind]) -> None:
        super().__init__(layers)

    def __iter__(self) -> Iterator[Kind]:
        return super().__iter__()  # type: ignore[return-value]
