"""The decoder-only architecture: one causal stack (Radford et al., 2018).

A language model reads one sequence (`read`). Translation reads the source, its end mark, the begin
mark and the target as one sequence (`forward`); the loss counts only the target.
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
from ablate.model.attention_context import AttentionContext, EarlierActivations
from ablate.model.builder import ModelBuilder
from ablate.model.decoding_cache import DecodingCache
from ablate.model.embeddings import previous_tokens
from ablate.model.stack import Layer, Stack, single_stack_layer
from ablate.model.transformer import SingleStack


class DecoderOnlyCache(DecodingCache):
    """Decoding cache in which the columns of the target follow the columns of the source.

    The first position of the target is the length of the source without its padding.
    """

    def __init__(self, stack: Stack[Layer], past: list[Any], source: Tensor, K: int) -> None:
        super().__init__(stack, past, source, K)
        self.source_lengths = (source != 0).sum(1)  # (B,)
        self.source_positions = torch.arange(source.shape[1], device=source.device)  # (S,)
        # The last decoded tokens (B, K), if the embedding of the next token needs them.
        self.previous: Tensor | None = None

    def sentence_context(self) -> AttentionContext:
        """Context of the newest tokens: they attend to the source and to their ancestors."""
        B, K, _ = self.ancestors.shape
        target_positions = self.source_lengths[:, None] + self.columns  # (B, columns)
        keys = torch.cat([self.source_positions.expand(B, -1), target_positions], dim=1)
        source_mask = self._source_mask(self.source_lengths)[:, None].expand(-1, K, -1)
        query_mask = torch.cat([source_mask, self.ancestors], dim=2)  # (B, K, S + columns)
        return AttentionContext(keys[:, -K:], keys, query_mask=query_mask[:, None])

    def hypothesis_context(self) -> AttentionContext:
        """Context of the newest tokens in a layer with a row for each hypothesis."""
        lengths = self.source_lengths.repeat_interleave(self.ancestors.shape[1])  # (B * K,)
        target_positions = lengths[:, None] + torch.arange(self.length, device=lengths.device)
        keys = torch.cat([self.source_positions.expand(len(lengths), -1), target_positions], dim=1)
        target_mask = torch.ones_like(target_positions, dtype=torch.bool)
        key_mask = torch.cat([self._source_mask(lengths), target_mask], dim=1)
        return AttentionContext(keys[:, -1:], keys, key_mask[:, None, None, :])

    def select(self, sentences: Tensor, origins: Tensor) -> None:
        """Keep some sentences, and some hypotheses of each; see `DecodingCache`."""
        if self.previous is not None:
            self.previous = self.previous[sentences[:, None], origins[sentences]]
        super().select(sentences, origins)

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep sentences by their indices in the batch (B')."""
        self.source_lengths = self.source_lengths.index_select(0, sentences)

    def _source_mask(self, lengths: Tensor) -> Tensor:
        """True at tokens: (n,) -> (n, S)."""
        return self.source_positions < lengths[:, None]


class DecoderOnly(SingleStack):
    """A single causal stack. In translation, end mark and begin mark show where the source ends."""

    def __init__(self, builder: ModelBuilder) -> None:
        super().__init__(builder, causal=True)
        depth = builder.config.depths[1]
        make = partial(single_stack_layer, causal=True)
        self.decoder = Stack.build(builder, depth, self.positions, make)
        self.decoder_norm = builder.final_norm(depth)
        self._add_embedding_parts(builder)
        last = self.positions.layer_encoding(depth - 1)
        heads = range(builder.config.future_tokens)
        self.future_heads = Stack((make([*builder.layers(depth)][-1], last) for _ in heads), 1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Token ids (B, S), (B, T), padded with 0 -> states at target positions (B, T, d_model)."""
        lengths = (source != 0).sum(1)  # (B,)
        # Columns of the target tokens (B, T): directly after the source, without its padding.
        columns = lengths[:, None] + torch.arange(target.shape[1], device=target.device)
        sequence = F.pad(source, (0, target.shape[1])).scatter(1, columns, target)  # (B, S + T)
        # Cut columns that are padding in all rows; not on a GPU, where reading them would wait.
        if not on_gpu(sequence):
            sequence = sequence[:, : int((lengths + (target != 0).sum(1)).max())]  # (B, L)
        (states,), _ = self._apply_stack(sequence)
        columns = columns.clamp(max=sequence.shape[1] - 1)  # columns that were cut are padding
        return states.gather(1, columns[:, :, None].expand(-1, -1, states.shape[2]))

    def read(self, tokens: Tensor) -> Tensor:
        """Read token ids (B, T), padded with 0 at the end -> states (B, T, d_model)."""
        (states,), _ = self._apply_stack(tokens)
        return states

    def read_ahead(self, tokens: Tensor) -> list[Tensor]:
        """The states of `read`, then the states of each head of future tokens, which has the same
        input as the last layer (Gloeckle et al., 2024, section 2).
        """
        return self._apply_stack(tokens, heads=self.future_heads)[0]

    def start(self, source: Tensor, K: int) -> DecoderOnlyCache:
        """Read token ids (B, S), and start to decode at most K hypotheses for each sentence."""
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
        x = self.expand_streams(self.embed(tokens, positions, cache.previous))
        if self.token_pairs:
            cache.previous = tokens
        earlier = EarlierActivations(x, tokens, [x])
        for pass_index, (i, layer) in enumerate(self.decoder.passes()):
            x = cache.apply_mixer(pass_index, i, layer, x, self.positions, earlier)
            x = layer.apply_feed_forward(x)
            if self.layer_skips is not None:
                x = self.layer_skips(pass_index, x, earlier.states)
        return self.decoder_norm(self.sum_streams(x))

    def _apply_stack(
        self, sequence: Tensor, key_mask: Tensor | None = None, heads: Iterable[Layer] = ()
    ) -> tuple[list[Tensor], list[Any]]:
        """Run token ids (B, L), padded with 0 at the end, through all layers.

        Args:
            sequence: token ids.
            key_mask: (B, 1, 1, L), true at tokens. Needed only if the states of the mixers are
                used, which would include padding; outputs depend only on earlier tokens.
            heads: heads of future tokens.

        Returns:
            The outputs (B, L, d_model) of the last layer and of each head; and the state of the
            token mixer after each application of a layer.
        """
        positions = torch.arange(sequence.shape[1], device=sequence.device)
        previous = query_mask = None
        if self.config.document_masks:
            positions, previous, query_mask = _documents(sequence)
        x = self.expand_streams(self.embedding_dropout(self.embed(sequence, positions, previous)))
        past = []
        earlier = EarlierActivations(x, sequence, [x])
        stack_context = AttentionContext(
            positions, positions, key_mask, query_mask, causal=True, earlier=earlier
        )
        for pass_index, (i, layer) in enumerate(self.decoder.passes()):
            layer_input = x
            context = stack_context.layer_context(i, self.positions)
            x, state = layer.apply_mixer(x, None, context)
            x = layer.apply_feed_forward(x)
            past.append(state)
            if self.layer_skips is not None:
                x = self.layer_skips(pass_index, x, earlier.states)
        states = [x]
        for head in heads:
            mixed, _ = head.apply_mixer(layer_input, None, context)
            states.append(head.apply_feed_forward(mixed))
        return [self.decoder_norm(self.sum_streams(x)) for x in states], past


def _documents(tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split token ids (B, T) into documents, each of which begins with an end mark.

    Returns:
        The position of each token in its document (B, T); the previous token in the document, 0
        for none (B, T); and whether two tokens belong to one document (B, 1, T, T).
    """
    begins = tokens == END_MARK
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    first = torch.where(begins, columns, 0).cummax(dim=1).values  # (B, T): column of its mark
    previous = previous_tokens(tokens).masked_fill(begins, 0)
    return columns - first, previous, (first[:, :, None] == first[:, None, :])[:, None]
