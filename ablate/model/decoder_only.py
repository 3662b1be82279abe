"""One causal stack, as language models are built (Radford et al., 2018).

A language model reads one sequence (`read`). Translation reads two in a row (`forward`): the source
with its end mark, then the begin mark and the target, with the loss on the target alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.config.language_data import END_MARK
from ablate.kernels.device import on_gpu
from ablate.model.attention_context import AttentionContext, Earlier
from ablate.model.builder import ModelBuilder
from ablate.model.decoding_cache import DecodingCache
from ablate.model.layers import or_identity
from ablate.model.stack import Layer, Stack, layer_of_one_stack
from ablate.model.token_pairs import previous_tokens
from ablate.model.transformer import Transformer


class DecoderOnlyCache(DecodingCache):
    """Decoding cache whose columns follow those of the source.

    The positions of a target follow those of its source's tokens, whatever the padding.
    """

    def __init__(self, stack: Stack[Layer], past: list[Any], source: Tensor, K: int) -> None:
        super().__init__(stack, past, source, K)
        self.source_lengths = (source != 0).sum(1)  # (B,)
        self.source_positions = torch.arange(source.shape[1], device=source.device)  # (S,)
        # (B, K): the tokens before the newest ones, where embeddings take from them.
        self.previous: Tensor | None = None

    def context_of_sentences(self) -> AttentionContext:
        """Context of the last tokens: the source without padding, and their ancestors."""
        B, K, _ = self.ancestors.shape
        target_positions = self.source_lengths[:, None] + self.columns  # (B, columns)
        keys = torch.cat([self.source_positions.expand(B, -1), target_positions], dim=1)
        in_source = self._source_mask(self.source_lengths)[:, None].expand(-1, K, -1)
        query_mask = torch.cat([in_source, self.ancestors], dim=2)  # (B, K, S + columns)
        return AttentionContext(keys[:, -K:], keys, query_mask=query_mask[:, None])

    def context_of_hypotheses(self) -> AttentionContext:
        """Context of the last tokens where each hypothesis is a row."""
        lengths = self.source_lengths.repeat_interleave(self.ancestors.shape[1])  # (B * K,)
        target_positions = lengths[:, None] + torch.arange(self.length, device=lengths.device)
        keys = torch.cat([self.source_positions.expand(len(lengths), -1), target_positions], dim=1)
        in_target = torch.ones_like(target_positions, dtype=torch.bool)
        key_mask = torch.cat([self._source_mask(lengths), in_target], dim=1)
        return AttentionContext(keys[:, -1:], keys, key_mask[:, None, None, :])

    def select(self, sentences: Tensor, origins: Tensor) -> None:
        """Keep some sentences, and some hypotheses of each."""
        if self.previous is not None:
            self.previous = self.previous[sentences[:, None], origins[sentences]]
        super().select(sentences, origins)

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep these sentences: indices into the batch (B')."""
        self.source_lengths = self.source_lengths.index_select(0, sentences)

    def _source_mask(self, lengths: Tensor) -> Tensor:
        """True at tokens: (n,) -> (n, S)."""
        return self.source_positions < lengths[:, None]


class DecoderOnly(Transformer):
    """A single causal stack. The two marks between the sides tell it where the source ends."""

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__(builder)
        self.positions = builder.positions(causal=True)
        depth = builder.config.depths[1]
        make = partial(layer_of_one_stack, causal=True)
        self.decoder = Stack.of(builder, depth, self.positions, make)
        self.decoder_norm = builder.final_norm(depth)
        first = builder.of_layer(builder.config.all_layers[0])
        self.embedding_norm = or_identity(builder.config.embedding_norm, first.norm)
        self.token_pairs = builder.token_pairs()
        self.layer_skips = builder.layer_skips()
        last = self.positions.of_layer(depth - 1)
        heads = range(builder.config.future_tokens)
        self.future_heads = Stack((make([*builder.layers(depth)][-1], last) for _ in heads), 1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Token ids (B, S), (B, T), padded with 0 -> states at target positions (B, T, d_model)."""
        lengths = (source != 0).sum(1)  # (B,)
        # (B, T): the columns of target tokens.
        columns = lengths[:, None] + torch.arange(target.shape[1], device=target.device)
        sequence = F.pad(source, (0, target.shape[1])).scatter(1, columns, target)  # (B, S + T)
        # Without common padding; reading its length would stall a GPU, and it is short.
        if not on_gpu(sequence):
            sequence = sequence[:, : int((lengths + (target != 0).sum(1)).max())]  # (B, L)
        (states,), _ = self._apply_stack(sequence)
        columns = columns.clamp(max=sequence.shape[1] - 1)  # those of padding may be beyond the end
        return states.gather(1, columns[:, :, None].expand(-1, -1, states.shape[2]))

    def read(self, tokens: Tensor) -> Tensor:
        """Read token ids (B, T), padded with 0 at the end -> states (B, T, d_model)."""
        (states,), _ = self._apply_stack(tokens)
        return states

    def read_ahead(self, tokens: Tensor) -> list[Tensor]:
        """The states of `read`, then those of each head of future tokens, which reads what the last
        layer reads (Gloeckle et al., 2024, section 2).
        """
        return self._apply_stack(tokens, heads=self.future_heads)[0]

    def start(self, source: Tensor, K: int) -> DecoderOnlyCache:
        """Run token ids (B, S) through the stack, to decode at most K hypotheses for each."""
        past = [None] * len(self.decoder) * self.decoder.loops
        if source.shape[1]:
            tokens = source != 0
            key_mask = None
            if not bool(tokens.all()):
                key_mask = tokens[:, None, None, :]
            _, past = self._apply_stack(source, key_mask)
        cache = DecoderOnlyCache(self.decoder, past, source, K)
        if self.token_pairs:
            last = (cache.source_lengths - 1).clamp(min=0)[:, None]
            cache.previous = F.pad(source, (0, 1)).gather(1, last)
        return cache

    def step(self, tokens: Tensor, cache: DecoderOnlyCache) -> Tensor:
        """Decode one token of each hypothesis: (B, K) -> states (B, K, d_model)."""
        cache.grow(tokens.shape[1])
        positions = (cache.source_lengths + cache.length - 1)[:, None].expand(tokens.shape)
        x = self.opened(self._embed(tokens, positions, cache.previous))
        if self.token_pairs:
            cache.previous = tokens
        earlier = Earlier(x, tokens, [x])
        for place, (i, layer) in enumerate(self.decoder.passes()):
            x = cache.apply_mixer(place, i, layer, x, self.positions, earlier)
            x = layer.apply_feed_forward(x)
            if self.layer_skips is not None:
                x = self.layer_skips(place, x, earlier.states)
        return self.decoder_norm(self.closed(x))

    def _embed(self, tokens: Tensor, positions: Tensor, previous: Tensor | None = None) -> Tensor:
        """Token ids (B, T), after `previous` (B, T) or those before them -> (B, T, d_model)."""
        x = self.embedding(tokens)
        if previous is None and self.token_pairs:
            previous = previous_tokens(tokens)
        for part in self.token_pairs:
            x = part(x, self.embedding, tokens, previous)
        embedded: Tensor = self.embedding_norm(self.positions.embed(x, positions))
        return embedded

    def _apply_stack(
        self, sequence: Tensor, key_mask: Tensor | None = None, heads: Iterable[Layer] = ()
    ) -> tuple[list[Tensor], list[Any]]:
        """Run token ids (B, L), padded with 0 at the end, through all layers.

        The key mask (B, 1, 1, L), true at tokens, is needed where the layers' states are used, in
        which padding would count; the output at a token never depends on what follows.

        Returns:
            (B, L, d_model) after the last layer and after each head beside it, and the state of
            each layer's token mixer.
        """
        positions = torch.arange(sequence.shape[1], device=sequence.device)
        previous = query_mask = None
        if self.config.document_masks:
            positions, previous, query_mask = _documents(sequence)
        x = self.opened(self.embedding_dropout(self._embed(sequence, positions, previous)))
        past = []
        earlier = Earlier(x, sequence, [x])
        masks = (key_mask, query_mask)
        whole = AttentionContext(positions, positions, *masks, causal=True, earlier=earlier)
        for place, (i, layer) in enumerate(self.decoder.passes()):
            read = x
            context = whole.in_layer(i, self.positions)
            x, state = layer.apply_mixer(x, None, context)
            x = layer.apply_feed_forward(x)
            past.append(state)
            if self.layer_skips is not None:
                x = self.layer_skips(place, x, earlier.states)
        states = [x]
        for head in heads:
            mixed, _ = head.apply_mixer(read, None, context)
            states.append(head.apply_feed_forward(mixed))
        return [self.decoder_norm(self.closed(x)) for x in states], past


def _documents(tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where each of token ids (B, T) is in its document, which begins with the mark before it.

    Returns:
        Positions in the document (B, T); the token before each one there, 0 for none (B, T); and
        whether two tokens are of one document (B, 1, T, T).
    """
    begins = tokens == END_MARK
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    first = torch.where(begins, columns, 0).cummax(dim=1).values  # (B, T): column of the mark
    previous = previous_tokens(tokens).masked_fill(begins, 0)
    return columns - first, previous, (first[:, :, None] == first[:, None, :])[:, None]
