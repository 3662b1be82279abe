"""What decoding token by token has behind it: what each layer keeps of every hypothesis, and who descends from whom.

Hypotheses of a sentence share their beginnings, and a beam search gives them other beginnings at every step. Attention
need not move what it keeps for that: the hypotheses are queries side by side over the tokens of all of them, and each
is shown its own ancestors. Where they are many, that would be work and memory for the square of them, and some mixers
cannot be shown less than all: there each hypothesis is a row with a past of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ablate.model.attention_context import AttentionContext
from ablate.model.positions import PositionalEncoding
from ablate.model.stack import Layer

MOST_BESIDE = 16  # hypotheses; faster up to there at least, by 13 to 15 % (benchmarks/LOG.md)


class Cache:
    """The past of B sentences of K hypotheses each; at the beginning each has a single empty one.

    Where hypotheses are side by side, every token of every step is a column of their sentence.
    """

    def __init__(self, stack: Iterable[Layer], past: list[Any], source: Tensor, K: int) -> None:
        """Nothing decoded yet.

        Args:
            stack: the layers that decode.
            past: what each of them keeps of the sentences already; None where it keeps nothing.
            source: token ids of the sentences (B, S).
            K: hypotheses of a sentence, at most.
        """
        B, device = len(source), source.device
        self.past = past
        # Whether each layer keeps sentences, and not hypotheses.
        self.beside = [layer.mixer.takes_seen and K <= MOST_BESIDE for layer in stack]
        self.sights: dict[bool, AttentionContext] = {}  # of this step
        self.length = 0  # tokens of each hypothesis
        self.columns = torch.zeros(0, dtype=torch.int64, device=device)  # the place of each
        self.seen = torch.ones(B, 1, 0, dtype=torch.bool, device=device)  # (B, K, columns)

    def grow(self, K: int) -> None:
        """Add a token to each of K hypotheses of every sentence.

        Raises:
            RuntimeError: there are others than K, and not a single one, of which there can be K copies.
        """
        B, before, _ = self.seen.shape
        if before not in (1, K):
            raise RuntimeError(f"{K} hypotheses a sentence go on from {before}")
        if before != K:
            self.select(torch.arange(B, device=self.seen.device), self.columns.new_zeros(B, K))
        own = torch.eye(K, dtype=torch.bool, device=self.seen.device).expand(B, K, K)
        self.seen = torch.cat([self.seen, own], dim=2)
        self.columns = torch.cat([self.columns, self.columns.new_full((K,), self.length)])
        self.length += 1
        self.sights.clear()

    def mix(self, i: int, layer: Layer, x: Tensor, order: PositionalEncoding) -> Tensor:
        """What layer i makes of the last tokens and what it keeps: (B, K, d_model) -> (B, K, d_model)."""
        B, K, d_model = x.shape
        beside = self.beside[i]
        if beside not in self.sights:
            self.sights[beside] = self.sight_of_sentences() if beside else self.sight_of_rows()
        given = x if beside else x.reshape(B * K, 1, d_model)
        mixed, self.past[i] = layer.mix(given, self.past[i], replace(self.sights[beside], order=order, layer=i))
        return mixed.view(B, K, d_model)

    def sight_of_sentences(self) -> AttentionContext:
        """What the last tokens see, those of a sentence side by side."""
        K = self.seen.shape[1]
        seen = None if len(self.columns) == self.length else self.seen[:, None]  # a single one sees all
        return AttentionContext(self.columns[-K:], self.columns, seen=seen)

    def sight_of_rows(self) -> AttentionContext:
        """The same where each hypothesis is a row."""
        places = torch.arange(self.length, device=self.columns.device)
        return AttentionContext(places[-1:], places)

    def select(self, stay: Tensor, origins: Tensor) -> None:
        """Go on with some sentences, and in each with some of its hypotheses.

        Args:
            stay: the sentences, among the B that there are (B').
            origins: for every one of the B sentences, the hypotheses that go on, some of them more than once (B, K').
        """
        B, K, _ = self.seen.shape
        origins = origins[stay]
        rows = (stay[:, None] * K + origins).flatten()
        self.seen = self.seen[stay[:, None], origins]
        for i, beside in enumerate(self.beside):
            if self.past[i] is not None and not (beside and len(stay) == B):
                self.past[i] = self.past[i].select(stay if beside else rows)
        if len(stay) < B:
            self.leave(stay)

    def leave(self, stay: Tensor) -> None:
        """Go on with some sentences, in whatever else is kept of them."""
