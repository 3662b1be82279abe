"""Cache for incremental decoding, with the mask of each hypothesis' ancestors.

Hypotheses of a sentence share their beginnings, and beam search gives them other beginnings at
every step. Keys and values need not be moved for that: the hypotheses are queries side by side over
the tokens of all of them, and a mask shows each only its own ancestors. Work and memory grow with
the square of the hypotheses, so for wide beams, and for token mixers that support no such mask,
each hypothesis is instead a row of the batch with keys and values of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ablate.model.attention_context import AttentionContext, Earlier
from ablate.model.positions import PositionalEncoding
from ablate.model.stack import Layer, Stack

# Hypotheses that are decoded side by side: 13 to 15 % faster than as rows for 8 and for 16
# (benchmarks/LOG.md, 2026-11-22, padding); more were not measured.
MAX_SIDE_BY_SIDE = 16


class DecodingCache:
    """The decoded tokens of B sentences with K hypotheses each, which begin as a single empty one.

    Where hypotheses are side by side, every token of every step is a column of its sentence.

    Attributes:
        past: the state of each layer's token mixer, of each time that it is passed.
        side_by_side: for each layer, whether the rows of its state are sentences; else they are
            hypotheses.
        length: tokens of each hypothesis.
        columns: position of each column in its hypothesis.
        ancestors: (B, K, columns), true where a column is part of a hypothesis.
    """

    def __init__(self, stack: Stack[Any], past: list[Any], source: Tensor, K: int) -> None:
        """Start with nothing decoded after token ids (B, S), and at most K hypotheses of each."""
        B = len(source)
        device = source.device
        self.past = past
        self.side_by_side = [
            layer.mixer.supports_query_masks and K <= MAX_SIDE_BY_SIDE
            for _, layer in stack.passes()
        ]
        # Of this step, by the method that makes it: one for all layers with the same rows.
        self.contexts: dict[Callable[[], AttentionContext], AttentionContext] = {}
        self.length = 0
        self.columns = torch.zeros(0, dtype=torch.int64, device=device)
        self.ancestors = torch.ones(B, 1, 0, dtype=torch.bool, device=device)

    def grow(self, K: int) -> None:
        """Add a token to each of K hypotheses of every sentence.

        Raises:
            RuntimeError: the number of hypotheses is neither K nor 1, of which there can be K
                copies.
        """
        B, before, _ = self.ancestors.shape
        if before not in (1, K):
            raise RuntimeError(f"{K} hypotheses a sentence go on from {before}")
        # The first step decodes the begin mark alone; after it, K copies go on.
        if before != K:
            self.select(torch.arange(B, device=self.ancestors.device), self.columns.new_zeros(B, K))
        # The K new tokens are K new columns, of which each hypothesis sees its own.
        itself = torch.eye(K, dtype=torch.bool, device=self.ancestors.device).expand(B, K, K)
        self.ancestors = torch.cat([self.ancestors, itself], dim=2)
        self.columns = torch.cat([self.columns, self.columns.new_full((K,), self.length)])
        self.length += 1
        self.contexts.clear()

    def apply_mixer(
        self,
        place: int,
        i: int,
        layer: Layer,
        x: Tensor,
        encoding: PositionalEncoding,
        earlier: Earlier | None = None,
    ) -> Tensor:
        """Apply the token mixer of layer i to the last tokens, as the layer at this place among all
        that are passed: (B, K, d_model) -> (B, K, d_model).
        """
        B, K, d_model = x.shape
        context_of = self.context_of_sentences
        rows = x
        if not self.side_by_side[place]:
            context_of = self.context_of_hypotheses
            rows = x.reshape(B * K, 1, d_model)
        if context_of not in self.contexts:
            self.contexts[context_of] = context_of()
        context = self.contexts[context_of].in_layer(i, encoding).changed(earlier=earlier)
        mixed, self.past[place] = layer.apply_mixer(rows, self.past[place], context)
        return mixed.view(B, K, d_model)

    def context_of_sentences(self) -> AttentionContext:
        """Context of the last tokens where the hypotheses of a sentence are side by side."""
        K = self.ancestors.shape[1]
        query_mask = None
        if len(self.columns) > self.length:  # else every column is an ancestor
            query_mask = self.ancestors[:, None]
        return AttentionContext(self.columns[-K:], self.columns, query_mask=query_mask)

    def context_of_hypotheses(self) -> AttentionContext:
        """Context of the last tokens where each hypothesis is a row."""
        positions = torch.arange(self.length, device=self.columns.device)
        return AttentionContext(positions[-1:], positions)

    def select(self, sentences: Tensor, origins: Tensor) -> None:
        """Keep sentences by their indices (B'), and for each of the B sentences the hypotheses that
        go on, some of them more than once (B, K').
        """
        B, K, _ = self.ancestors.shape
        origins = origins[sentences]  # (B', K')
        rows = (sentences[:, None] * K + origins).flatten()
        self.ancestors = self.ancestors[sentences[:, None], origins]
        for i, side_by_side in enumerate(self.side_by_side):
            if self.past[i] is None:
                continue
            if not side_by_side:
                self.past[i] = self.past[i].select(rows)
            # While no sentence leaves, keys and values stay in place: only the ancestors change.
            elif len(sentences) < B:
                self.past[i] = self.past[i].select(sentences)
        if len(sentences) < B:
            self.select_sentences(sentences)

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep these sentences, indices into the batch (B'), in the state that a subclass adds."""
