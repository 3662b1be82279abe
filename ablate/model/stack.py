"""A stack of layers (section 3.1, figure 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
    """A token mixer, such as self-attention, then the feed-forward network."""

    def __init__(self, builder: ModelBuilder, positions: PositionalEncoding, causal: bool) -> None:
        super().__init__()
        self.skip = builder.skip()
        self.mixer = builder.token_mixer(positions, causal)
        self.around_mixer = builder.residual(shares_norm=builder.has_normed_input)
        self._add_sublayers(builder)
        self.feed_forward: nn.Module | None = None
        if builder.config.feed_forward != "none":
            self.feed_forward = builder.feed_forward()
            self.around_feed_forward = builder.residual()

    def _add_sublayers(self, builder: ModelBuilder) -> None:
        """Make the sub-layers that a subclass has between the mixer and the feed-forward network.

        Called between these two, because initial weights are drawn in the order of the calls.
        """

    def apply_mixer(self, x: Tensor, past: Any, context: AttentionContext) -> tuple[Tensor, Any]:
        """Apply the token mixer: (B, T, d_model) -> (B, T, d_model), and the mixer's state."""
        x = self.read(x, context)
        mixed, state = self.mixer(self.around_mixer.before(x), past, context)
        return self.around_mixer.after(x, mixed), state

    def read(self, x: Tensor, context: AttentionContext) -> Tensor:
        """The stream that the layer reads, after `skip`: (B, T, d_model) -> (B, T, d_model)."""
        if self.skip is None or context.earlier is None:
            return x
        stream: Tensor = self.skip(x, context.earlier.embedded.reshape(x.shape))
        return stream

    def apply_feed_forward(self, x: Tensor) -> Tensor:
        """Apply the feed-forward network: (B, T, d_model) -> (B, T, d_model)."""
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
        """Apply both sub-layers: (B, T, d_model) -> (B, T, d_model), and the mixer's state."""
        x = self.read(x, context)
        assert self.feed_forward is not None
        sublayer_input = self.around_mixer.before(x)
        mixed, state = self.mixer(sublayer_input, past, context)
        if not self.shares_norm:
            sublayer_input = self.around_feed_forward.before(x)
        inner = self.feed_forward(sublayer_input)
        return self.around_feed_forward.after(self.around_mixer.after(x, mixed), inner), state

    def apply_feed_forward(self, x: Tensor) -> Tensor:
        """Return x: `apply_mixer` applies both sub-layers."""
        return x


def single_stack_layer(builder: ModelBuilder, positions: PositionalEncoding, causal: bool) -> Layer:
    """A layer of a model with a single stack, sequential or parallel by `sublayers`."""
    if builder.config.sublayers == "sequential":
        return Layer(builder, positions, causal)
    return ParallelLayer(builder, positions, causal)


class DecoderLayer(Layer):
    """Masked self-attention, cross-attention over the source, then the feed-forward network."""

    def __init__(self, builder: ModelBuilder, positions: PositionalEncoding) -> None:
        super().__init__(builder, positions, causal=True)

    def _add_sublayers(self, builder: ModelBuilder) -> None:
        self.cross_attention = builder.cross_attention()
        self.around_cross_attention = builder.residual()

    def apply_cross_attention(
        self, x: Tensor, memory: KeyValues, context: AttentionContext
    ) -> Tensor:
        """Apply cross-attention: (B, T, d_model) -> (B, T, d_model)."""
        around = self.around_cross_attention
        return around.after(x, self.cross_attention.cross_attend(around.before(x), memory, context))


LayerType = TypeVar("LayerType", bound=Layer)
Maker = Callable[[ModelBuilder, PositionalEncoding], LayerType]


class Stack(nn.ModuleList, Generic[LayerType]):
    """Layers of the same type. The whole stack is applied `loops` times."""

    def __init__(self, layers: Iterable[LayerType], loops: int) -> None:
        super().__init__(layers)
        self.loops = loops

    @staticmethod
    def build(
        builder: ModelBuilder, depth: int, positions: PositionalEncoding, make: Maker[LayerType]
    ) -> Stack[LayerType]:
        """Build a stack of this depth, each layer with its positional encoding."""
        layers = []
        for i, layer_builder in enumerate(builder.layers(depth)):
            layers.append(make(layer_builder, positions.layer_encoding(i)))
        return Stack(layers, builder.config.loops)

    def __iter__(self) -> Iterator[LayerType]:
        return super().__iter__()  # type: ignore[return-value]

    def passes(self) -> Iterator[tuple[int, LayerType]]:
        """Yield the index and the layer for each application of a layer, in order, with loops."""
        for _ in range(self.loops):
            yield from enumerate(self)


def encoder_context(source: Tensor, layers: Stack[Layer]) -> AttentionContext:
    """Context of self-attention over token ids (B, S), padded with 0 at the end."""
    tokens = source != 0
    positions = torch.arange(source.shape[1], device=source.device)
    key_mask = lengths = None
    # Without padding, no mask is needed. On a GPU, looking for padding would wait for the GPU.
    if on_gpu(tokens) or not bool(tokens.all()):
        key_mask = tokens[:, None, None, :]
        # Once for all layers, because copying lengths to the host waits for the GPU.
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
    for pass_index, (i, layer) in enumerate(layers.passes()):
        x, _ = layer.apply_mixer(x, None, context.layer_context(i, encoding))
        x = layer.apply_feed_forward(x)
        if skips is not None and context.earlier is not None:
            x = skips(pass_index, x, context.earlier.states)
    return x
