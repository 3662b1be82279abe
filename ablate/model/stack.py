"""A stack of layers (section 3.1, figure 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ablate.kernels.device import on_gpu
from ablate.model.attention_context import AttentionContext
from ablate.model.builder import ModelBuilder
from ablate.model.kv_cache import KeyValues
from ablate.model.positions import PositionalEncoding
from ablate.model.residual import LayerSkips


class Layer(nn.Module):
    """A token mixer, such as self-attention, then the feed-forward network: an encoder's layer."""

    def __init__(self, builder: ModelBuilder, positions: PositionalEncoding, causal: bool) -> None:
        super().__init__()
        self.skip = builder.skip()
        self.mixer = builder.token_mixer(positions, causal)
        self.around_mixer = builder.residual(shares_norm=builder.has_norm_of_embeddings)
        self._add_sublayers(builder)
        self.feed_forward: nn.Module | None = None
        if builder.config.feed_forward != "none":
            self.feed_forward = builder.feed_forward()
            self.around_feed_forward = builder.residual()

    def _add_sublayers(self, builder: ModelBuilder) -> None:
        """Make further sub-layers of a subclass.

        Called after the mixer and before the feed-forward network are made, since this order is
        that of the draws of initial weights.
        """

    def apply_mixer(self, x: Tensor, past: Any, context: AttentionContext) -> tuple[Tensor, Any]:
        """The token mixer and its residual: (B, T, d_model) -> the same, and the mixer's state."""
        x = self.read(x, context)
        mixed, state = self.mixer(self.around_mixer.before(x), past, context)
        return self.around_mixer.after(x, mixed), state

    def read(self, x: Tensor, context: AttentionContext) -> Tensor:
        """The stream that the layer reads (B, T, d_model), after its skip."""
        if self.skip is None or context.earlier is None:
            return x
        read: Tensor = self.skip(x, context.earlier.embedded.reshape(x.shape))
        return read

    def apply_feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward network and its residual: (B, T, d_model) -> (B, T, d_model)."""
        if self.feed_forward is None:
            return x
        around = self.around_feed_forward
        return around.after(x, self.feed_forward(around.before(x)))


class ParallelLayer(Layer):
    """A layer whose feed-forward network reads the same stream as its mixer (GPT-J, GPT-NeoX)."""

    def __init__(self, builder: ModelBuilder, positions: PositionalEncoding, causal: bool) -> None:
        super().__init__(builder, positions, causal)
        self.shares_norm = builder.config.sublayers == "parallel_shared_norm"
        if self.shares_norm:
            self.around_feed_forward = builder.residual(shares_norm=True)

    def apply_mixer(self, x: Tensor, past: Any, context: AttentionContext) -> tuple[Tensor, Any]:
        """Both sub-layers: (B, T, d_model) -> (B, T, d_model), and the mixer's state."""
        x = self.read(x, context)
        assert self.feed_forward is not None
        read = self.around_mixer.before(x)
        mixed, state = self.mixer(read, past, context)
        if not self.shares_norm:
            read = self.around_feed_forward.before(x)
        inner = self.feed_forward(read)
        return self.around_feed_forward.after(self.around_mixer.after(x, mixed), inner), state

    def apply_feed_forward(self, x: Tensor) -> Tensor:
        """Nothing more: (B, T, d_model) -> the same."""
        return x


def layer_of_one_stack(builder: ModelBuilder, positions: PositionalEncoding, causal: bool) -> Layer:
    """A layer without attention over another sequence, by `sublayers`."""
    kind = Layer if builder.config.sublayers == "sequential" else ParallelLayer
    return kind(builder, positions, causal)


class DecoderLayer(Layer):
    """Masked self-attention, attention over the source, then the feed-forward network."""

    def __init__(self, builder: ModelBuilder, positions: PositionalEncoding) -> None:
        super().__init__(builder, positions, causal=True)

    def _add_sublayers(self, builder: ModelBuilder) -> None:
        self.cross_attention = builder.cross_attention()
        self.around_cross_attention = builder.residual()

    def apply_cross_attention(
        self, x: Tensor, memory: KeyValues, context: AttentionContext
    ) -> Tensor:
        """Attention over the source and its residual: (B, T, d_model) -> (B, T, d_model)."""
        around = self.around_cross_attention
        return around.after(x, self.cross_attention.cross_attend(around.before(x), memory, context))


LayerType = TypeVar("LayerType", bound=Layer)
Maker = Callable[[ModelBuilder, PositionalEncoding], LayerType]


class Stack(nn.ModuleList, Generic[LayerType]):
    """Layers of one type, applied one after another, and that `loops` times."""

    def __init__(self, layers: Iterator[LayerType], loops: int) -> None:
        super().__init__(layers)
        self.loops = loops

    @staticmethod
    def of(
        builder: ModelBuilder, depth: int, positions: PositionalEncoding, make: Maker[LayerType]
    ) -> Stack[LayerType]:
        """So many layers, each with the positional encoding of its place."""
        layers = enumerate(builder.layers(depth))
        made = (make(layer, positions.of_layer(i)) for i, layer in layers)
        return Stack(made, builder.config.loops)

    def __iter__(self) -> Iterator[LayerType]:
        return super().__iter__()  # type: ignore[return-value]

    def passes(self) -> Iterator[tuple[int, LayerType]]:
        """Each layer with its index in the stack, as often as it is applied."""
        for _ in range(self.loops):
            yield from enumerate(self)


def encoder_context(source: Tensor, layers: Stack[Layer]) -> AttentionContext:
    """Context of self-attention in an encoder: token ids (B, S), padded with 0 at the end."""
    tokens = source != 0
    positions = torch.arange(source.shape[1], device=source.device)
    key_mask = lengths = None
    # Without padding no mask is needed; asking a GPU would stall it.
    if on_gpu(tokens) or not bool(tokens.all()):
        key_mask = tokens[:, None, None, :]
        # Computed once for all layers, because copying lengths to the host stalls a GPU.
        if any(layer.mixer.needs_lengths for layer in layers):
            lengths = tokens.sum(1).cpu()
    return AttentionContext(positions, positions, key_mask, lengths=lengths)


def apply_encoder(
    layers: Stack[Layer],
    x: Tensor,
    encoding: PositionalEncoding,
    context: AttentionContext,
    skips: LayerSkips | None = None,
) -> Tensor:
    """Apply the layers of an encoder: (B, S, d_model) -> (B, S, d_model)."""
    for place, (i, layer) in enumerate(layers.passes()):
        x, _ = layer.apply_mixer(x, None, context.in_layer(i, encoding))
        x = layer.apply_feed_forward(x)
        if skips is not None and context.earlier is not None:
            x = skips(place, x, context.earlier.states)
    return x
