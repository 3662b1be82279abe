"""Cache for incremental decoding with beam search.

Beam search reorders the hypotheses of a sentence at every step. If they are queries over one shared
cache, no keys or values move: a mask lets each hypothesis see only its ancestors, the tokens that
the hypothesis consists of. Work and memory then grow with the square of the beam. For wide beams,
and for token mixers without masks per query, each hypothesis is instead a row of the batch, with a
separate cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ablate.model.attention_context import AttentionContext, EarlierActivations
from ablate.model.positions import PositionalEncoding
from ablate.model.stack import Layer, Stack

# Widest beam with a shared cache: 13 to 15 % faster than rows for 8 and for 16 hypotheses
# (benchmarks/LOG.md, 2026-11-22, padding); wider beams were not measured.
MAX_SIDE_BY_SIDE = 16


class DecodingCache:
    """The decoded tokens of B sentences with K hypotheses each; at first one empty hypothesis.

    In a shared cache, each decoded token of each hypothesis is a column of its sentence.

    Attributes:
        past: the state of the token mixer for each application of a layer.
        side_by_side: for each application of a layer, whether a row of its state is a sentence with
            a shared cache; otherwise a row is a hypothesis.
        length: number of decoded tokens of each hypothesis.
        columns: position of each column in its hypothesis.
        ancestors: (B, K, columns), true where a column belongs to a hypothesis.
    """

    def __init__(self, stack: Stack[Any], past: list[Any], source: Tensor, K: int) -> None:
        """Start to decode after token ids (B, S), with at most K hypotheses for each sentence."""
        B = len(source)
        device = source.device
        self.past = past
        self.side_by_side = [
            layer.mixer.supports_query_masks and K <= MAX_SIDE_BY_SIDE
            for _, layer in stack.passes()
        ]
        # Contexts of the current step, by the method that makes them; layers share them.
        self.contexts: dict[Callable[[], AttentionContext], AttentionContext] = {}
        self.length = 0
        self.columns = torch.zeros(0, dtype=torch.int64, device=device)
        self.ancestors = torch.ones(B, 1, 0, dtype=torch.bool, device=device)

    def grow(self, K: int) -> None:
        """Add a token to each of K hypotheses of every sentence.

        Raises:
            RuntimeError: the number of hypotheses of a sentence is neither K nor 1.
        """
        B, n_hypotheses, _ = self.ancestors.shape
        if n_hypotheses not in (1, K):
            raise RuntimeError(f"a sentence has {n_hypotheses} hypotheses; expected 1 or {K}")
        # The first step decodes only the begin mark. After it, copy the single hypothesis.
        if n_hypotheses != K:
            self.select(torch.arange(B, device=self.ancestors.device), self.columns.new_zeros(B, K))
        # K new columns, one for the new token of each hypothesis.
        new_columns = torch.eye(K, dtype=torch.bool, device=self.ancestors.device).expand(B, K, K)
        self.ancestors = torch.cat([self.ancestors, new_columns], dim=2)
        self.columns = torch.cat([self.columns, self.columns.new_full((K,), self.length)])
        self.length += 1
        self.contexts.clear()

    def apply_mixer(
        self,
        pass_index: int,
        i: int,
        layer: Layer,
        x: Tensor,
        encoding: PositionalEncoding,
        earlier: EarlierActivations | None = None,
    ) -> Tensor:
        """Apply the token mixer of a layer to the newest tokens.

        Args:
            pass_index: index of this application of a layer among all of them.
            i: index of the layer in its stack.
            layer: the layer.
            x: (B, K, d_model).
            encoding: positional encoding of the stack.
            earlier: activations of earlier layers.

        Returns:
            (B, K, d_model).
        """
        B, K, d_model = x.shape
        if self.side_by_side[pass_index]:
            make_context = self.sentence_context
            rows = x
        else:
            make_context = self.hypothesis_context
            rows = x.reshape(B * K, 1, d_model)
        if make_context not in self.contexts:
            self.contexts[make_context] = make_context()
        context = self.contexts[make_context].layer_context(i, encoding).replace(earlier=earlier)
        mixed, self.past[pass_index] = layer.apply_mixer(rows, self.past[pass_index], context)
        return mixed.view(B, K, d_model)

    def sentence_context(self) -> AttentionContext:
        """Context of the newest tokens in a layer with a shared cache for each sentence."""
        K = self.ancestors.shape[1]
        query_mask = None
        if len(self.columns) > self.length:  # with one hypothesis, every column is an ancestor
            query_mask = self.ancestors[:, None]
        return AttentionContext(self.columns[-K:], self.columns, query_mask=query_mask)

    def hypothesis_context(self) -> AttentionContext:
        """Context of the newest tokens in a layer with a row for each hypothesis."""
        positions = torch.arange(self.length, device=self.columns.device)
        return AttentionContext(positions[-1:], positions)

    def select(self, sentences: Tensor, origins: Tensor) -> None:
        """Keep some sentences, and choose the hypotheses that continue.

        Args:
            sentences: indices of the sentences to keep (B').
            origins: for each of the B sentences, the indices of the hypotheses to continue (B, K');
                an index may occur several times.
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
            # In a shared cache, keys and values move only when a sentence leaves.
            elif len(sentences) < B:
                self.past[i] = self.past[i].select(sentences)
        if len(sentences) < B:
            self.select_sentences(sentences)

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep sentences by their indices (B'), in the attributes that a subclass adds."""
