"""The encoder-decoder (section 3.1, figure 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ablate.model.attention import KeysValues
from ablate.model.attention_context import AttentionContext
from ablate.model.cache import Cache
from ablate.model.parts import ModelBuilder
from ablate.model.positions import PositionalEncoding
from ablate.model.stack import Layer, Stack
from ablate.model.transformer import Transformer


@dataclass
class Memory:
    """What the decoder asks: each layer's keys and values of the encoded source, and what of it is padding.

    real: (B, 1, 1, S), true at tokens; None where no sentence is padded.
    """

    layers: list[KeysValues]
    real: Tensor | None

    def select(self, rows: Tensor) -> Memory:
        """The memory of these sentences."""
        real = None if self.real is None else self.real.index_select(0, rows)
        return Memory([layer.select(rows) for layer in self.layers], real)

    def sight(self, queries: int) -> AttentionContext:
        """What queries see of the source: all of its tokens."""
        keys = self.layers[0].K
        places = torch.arange(max(queries, keys.shape[2]), device=keys.device)
        return AttentionContext(places[:queries], places[: keys.shape[2]], self.real)


class Decoded(Cache):
    """The memory of B sentences, and the past of their hypotheses."""

    def __init__(self, stack: Stack[DecoderLayer], memory: Memory, source: Tensor, K: int) -> None:
        super().__init__(stack, [None] * len(stack), source, K)
        self.memory = memory

    def leave(self, stay: Tensor) -> None:
        """Go on with some sentences."""
        self.memory = self.memory.select(stay)


class DecoderLayer(Layer):
    """Masked self-attention, attention over the source, then the feed-forward network."""

    def __init__(self, parts: ModelBuilder, positions: PositionalEncoding) -> None:
        super().__init__(parts, positions, causal=True)

    def _make_between(self, parts: ModelBuilder) -> None:
        self.cross_attention = parts.cross_attention()
        self.around_cross_attention = parts.around()

    def ask(self, x: Tensor, memory: KeysValues, sight: AttentionContext) -> Tensor:
        """Attention over the source: (B, T, d_model) -> (B, T, d_model)."""
        around = self.around_cross_attention
        return around.after(x, self.cross_attention.over(around.before(x), memory, sight))


class EncoderDecoder(Transformer):
    """The paper's model: a stack of encoder layers, a stack of decoder layers that ask what it made of the source."""

    def __init__(self, parts: ModelBuilder) -> None:
        super().__init__(parts)
        depth, of_decoder = parts.config.depths
        self.source_embedding = None if parts.config.tied_embeddings == "all" else parts.embedding()
        self.source_positions = parts.positions(causal=False)
        self.target_positions = parts.positions(causal=True)
        self.encoder = Stack(Layer(parts, self.source_positions, causal=False) for _ in range(depth))
        self.encoder_norm = parts.last_norm()
        self.decoder = Stack(DecoderLayer(parts, self.target_positions) for _ in range(of_decoder))
        self.decoder_norm = parts.last_norm()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Token ids (B, S) and (B, T), padded with 0 at the end -> decoder states (B, T, d_model)."""
        memory = self.encode(source)
        places = torch.arange(target.shape[1], device=target.device)
        x = self.embedding_dropout(self.target_positions.embed(self.embedding(target), places))
        over_source = memory.sight(target.shape[1])
        for i, (layer, keys_values) in enumerate(zip(self.decoder, memory.layers, strict=True)):
            sight = AttentionContext(places, places, causal=True, order=self.target_positions, layer=i)
            x, _ = layer.mix(x, None, sight)
            x = layer.feed(layer.ask(x, keys_values, over_source))
        return self.decoder_norm(x)

    def encode(self, source: Tensor) -> Memory:
        """Token ids (B, S) -> what the decoder asks."""
        tokens = source != 0
        places = torch.arange(source.shape[1], device=source.device)
        whole = tokens.device.type == "cpu" and bool(tokens.all())  # a GPU would stop to say, and gains little by it
        real = None if whole else tokens[:, None, None, :]
        of_source = AttentionContext(places, places, real)
        embed = self.embedding if self.source_embedding is None else self.source_embedding
        x = self.embedding_dropout(self.source_positions.embed(embed(source), places))
        for i, layer in enumerate(self.encoder):
            x, _ = layer.mix(x, None, replace(of_source, order=self.source_positions, layer=i))
            x = layer.feed(x)
        x = self.encoder_norm(x)
        return Memory([layer.cross_attention.keys_values(x, of_source) for layer in self.decoder], real)

    def start(self, source: Tensor, K: int) -> Decoded:
        """Token ids (B, S) -> the encoded source, and no past."""
        return Decoded(self.decoder, self.encode(source), source, K)

    def step(self, tokens: Tensor, cache: Decoded) -> Tensor:
        """One step: tokens (B, K) -> states (B, K, d_model).

        To the source too, hypotheses are queries side by side, so its keys and values are never repeated.
        """
        K = tokens.shape[1]
        cache.grow(K)
        x = self.target_positions.embed(self.embedding(tokens), cache.columns[-K:])
        over_source = cache.memory.sight(K)
        for i, (layer, keys_values) in enumerate(zip(self.decoder, cache.memory.layers, strict=True)):
            x = cache.mix(i, layer, x, self.target_positions)
            x = layer.feed(layer.ask(x, keys_values, over_source))
        return self.decoder_norm(x)
