"""The encoder-decoder of the paper (section 3.1, figure 1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.model.attention_context import AttentionContext
from ablate.model.builder import ModelBuilder
from ablate.model.decoding_cache import DecodingCache
from ablate.model.kv_cache import KeyValues
from ablate.model.stack import DecoderLayer, Layer, Stack, apply_encoder, encoder_context
from ablate.model.transformer import Transformer


@dataclass
class EncodedSource:
    """The encoded source, as attention over it takes it.

    Attributes:
        layers: keys and values of each decoder layer.
        key_mask: (B, 1, 1, S), true at tokens; None where no sentence is padded.
    """

    layers: list[KeyValues]
    key_mask: Tensor | None

    def select(self, rows: Tensor) -> EncodedSource:
        """Rows (B') of the batch, in this order."""
        key_mask = None if self.key_mask is None else self.key_mask.index_select(0, rows)
        return EncodedSource([layer.select(rows) for layer in self.layers], key_mask)

    def context(self, queries: int) -> AttentionContext:
        """Context of attention of so many queries over all tokens of the source."""
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
        """Keep these sentences: indices into the batch (B')."""
        self.memory = self.memory.select(sentences)


class EncoderDecoder(Transformer):
    """A stack of encoder layers, and a stack of decoder layers with attention over the encoder's
    output.
    """

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__(builder)
        n_encoder, n_decoder = builder.config.depths
        self.source_embedding = (
            None if builder.config.tied_embeddings == "all" else builder.embedding()
        )
        self.source_positions = builder.positions(causal=False)
        self.target_positions = builder.positions(causal=True)
        encoder = (
            Layer(layer, self.source_positions.of_layer(i), causal=False)
            for i, layer in enumerate(builder.layers(n_encoder))
        )
        self.encoder = Stack(encoder, builder.config.loops)
        self.encoder_norm = builder.final_norm(n_encoder)
        decoder = (
            DecoderLayer(layer, self.target_positions.of_layer(i))
            for i, layer in enumerate(builder.layers(n_decoder))
        )
        self.decoder = Stack(decoder, builder.config.loops)
        self.decoder_norm = builder.final_norm(n_decoder)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Token ids (B, S) and (B, T), padded with 0 at the end -> decoder states (B, T,
        d_model).
        """
        memory = self.encode(source)
        positions = torch.arange(target.shape[1], device=target.device)
        x = self.embedding_dropout(self.target_positions.embed(self.embedding(target), positions))
        over_source = memory.context(target.shape[1])
        for i, layer in self.decoder.passes():
            context = AttentionContext(
                positions,
                positions,
                causal=True,
                positional_encoding=self.target_positions.of_layer(i),
                layer=i,
            )
            x, _ = layer.apply_mixer(x, None, context)
            x = layer.apply_cross_attention(x, memory.layers[i], over_source)
            x = layer.apply_feed_forward(x)
        return self.decoder_norm(x)

    def encode(self, source: Tensor) -> EncodedSource:
        """Encode token ids (B, S), padded with 0 at the end."""
        context = encoder_context(source, self.encoder)
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        x = self.embedding_dropout(
            self.source_positions.embed(embedding(source), context.query_positions)
        )
        x = self.encoder_norm(apply_encoder(self.encoder, x, self.source_positions, context))
        # Projected once for the whole sentence; decoding reads them in each step.
        return EncodedSource(
            [layer.cross_attention.key_values(x, context) for layer in self.decoder],
            context.key_mask,
        )

    def start(self, source: Tensor, K: int) -> EncoderDecoderCache:
        """Encode token ids (B, S), and start to decode at most K hypotheses for each."""
        return EncoderDecoderCache(self.decoder, self.encode(source), source, K)

    def step(self, tokens: Tensor, cache: EncoderDecoderCache) -> Tensor:
        """Decode one token of each hypothesis: (B, K) -> states (B, K, d_model)."""
        K = tokens.shape[1]
        cache.grow(K)
        x = self.target_positions.embed(self.embedding(tokens), cache.columns[-K:])
        # Hypotheses are side by side here in any case, so keys and values of the source are never
        # repeated.
        over_source = cache.memory.context(K)
        for place, (i, layer) in enumerate(self.decoder.passes()):
            x = cache.apply_mixer(place, i, layer, x, self.target_positions)
            x = layer.apply_cross_attention(x, cache.memory.layers[i], over_source)
            x = layer.apply_feed_forward(x)
        return self.decoder_norm(x)
