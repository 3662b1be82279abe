"""The encoder-decoder of the paper (section 3.1, figure 1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ablate.model.attention_context import AttentionContext
from ablate.model.builder import ModelBuilder
from ablate.model.decoding_cache import DecodingCache
from ablate.model.kv_cache import BatchState, KeyValues
from ablate.model.layers import optional
from ablate.model.stack import DecoderLayer, Layer, Stack, apply_encoder, encoder_context
from ablate.model.transformer import Transformer


@dataclass(frozen=True)
class EncodedSource(BatchState):
    """The encoded source, projected to keys and values for cross-attention.

    Attributes:
        layers: keys and values for each decoder layer.
        key_mask: (B, 1, 1, S), true at tokens; None without padding.
    """

    layers: list[KeyValues]
    key_mask: Tensor | None

    def context(self, queries: int) -> AttentionContext:
        """Context of cross-attention for this number of queries."""
        K = self.layers[0].K
        positions = torch.arange(max(queries, K.shape[2]), device=K.device)
        return AttentionContext(positions[:queries], positions[: K.shape[2]], self.key_mask)


class EncoderDecoderCache(DecodingCache):
    """Decoding cache with the encoded source."""

    def __init__(
        self, stack: Stack[DecoderLayer], memory: EncodedSource, source: Tensor, K: int
    ) -> None:
        super().__init__(stack, [None] * len(stack) * stack.loops, source, K)
        self.memory = memory

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep the encoded source of sentences by their indices (B')."""
        self.memory = self.memory.select(sentences)


class EncoderDecoder(Transformer):
    """A stack of encoder layers, and a stack of decoder layers that attend to its output."""

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__(builder)
        n_encoder, n_decoder = builder.config.depths
        has_source_embedding = builder.config.tied_embeddings != "all"
        self.source_embedding = optional(has_source_embedding, builder.embedding)
        self.source_positions = builder.positions(causal=False)
        self.target_positions = builder.positions(causal=True)
        make = partial(Layer, causal=False)
        self.encoder = Stack.build(builder, n_encoder, self.source_positions, make)
        self.encoder_norm = builder.final_norm(n_encoder)
        self.decoder = Stack.build(builder, n_decoder, self.target_positions, DecoderLayer)
        self.decoder_norm = builder.final_norm(n_decoder)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Token ids (B, S), (B, T), padded with 0 at the end -> decoder states (B, T, d_model)."""
        memory = self.encode(source)
        positions = torch.arange(target.shape[1], device=target.device)
        x = self.embedding_dropout(self.target_positions.embed(self.embedding(target), positions))
        source_context = memory.context(target.shape[1])
        context = AttentionContext(positions, positions, causal=True)
        for i, layer in self.decoder.passes():
            x, _ = layer.apply_mixer(x, None, context.layer_context(i, self.target_positions))
            x = layer.apply_cross_attention(x, memory.layers[i], source_context)
            x = layer.apply_feed_forward(x)
        return self.decoder_norm(x)

    def encode(self, source: Tensor) -> EncodedSource:
        """Encode token ids (B, S), padded with 0 at the end."""
        context = encoder_context(source, self.encoder)
        x = (self.source_embedding or self.embedding)(source)
        x = self.embedding_dropout(self.source_positions.embed(x, context.query_positions))
        x = self.encoder_norm(apply_encoder(self.encoder, x, self.source_positions, context))
        # Keys and values are projected once here, and not in each decoding step.
        layers = [layer.cross_attention.key_values(x, context) for layer in self.decoder]
        return EncodedSource(layers, context.key_mask)

    def start(self, source: Tensor, K: int) -> EncoderDecoderCache:
        """Encode token ids (B, S), and start to decode at most K hypotheses for each sentence."""
        return EncoderDecoderCache(self.decoder, self.encode(source), source, K)

    def step(self, tokens: Tensor, cache: EncoderDecoderCache) -> Tensor:
        """Decode one token of each hypothesis: (B, K) -> states (B, K, d_model)."""
        K = tokens.shape[1]
        cache.grow(K)
        x = self.target_positions.embed(self.embedding(tokens), cache.columns[-K:])
        # The hypotheses of a sentence are queries over one source, whose keys are never copied.
        source_context = cache.memory.context(K)
        for pass_index, (i, layer) in enumerate(self.decoder.passes()):
            x = cache.apply_mixer(pass_index, i, layer, x, self.target_positions)
            x = layer.apply_cross_attention(x, cache.memory.layers[i], source_context)
            x = layer.apply_feed_forward(x)
        return self.decoder_norm(x)
