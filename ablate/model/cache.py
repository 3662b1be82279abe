"""What decoding token by token has behind it: what each layer keeps of every hypothesis, and who descends from whom.

Hypotheses of a sentence share their beginnings, and a beam search gives them other beginnings at every step. Attention
need not move what it keeps for that: the hypotheses are queries side by side over the tokens of all of them, and each
is shown its own ancestors. What can not be shown less than all has a row of its own for each hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ablate.model.positions import PositionalEncoding
from ablate.model.sight import Sight
from ablate.model.stack import Layer


class Cache:
    """The past of B sentences of K hypotheses each; at the beginning each has a single empty one.

    Every token of every step is a column. What a step has changed holds until the next `select`.
    """

    def __init__(self, stack: Iterable[Layer], past: list[Any], source: Tensor) -> None:
        """Nothing decoded yet.

        Args:
            stack: the layers that decode.
            past: what each of them keeps of the sentences already; None where it keeps nothing.
            source: token ids of the sentences (B, S).
        """
        B, device = len(source), source.device
        self.past = past
        self.beside = [layer.mixer.takes_seen for layer in stack]  # whether it keeps sentences, and not hypotheses
        self.length = 0  # tokens of each hypothesis
        self.columns = torch.zeros(0, dtype=torch.int64, device=device)  # the place of each
        self.seen = torch.ones(B, 1, 0, dtype=torch.bool, device=device)  # (B, K, columns)

    def grow(self, K: int) -> None:
        """Add a token to each of K hypotheses of every sentence, as many as there are, or K copies of a single one."""
        B, before, _ = self.seen.shape
        if before != K:
            self.select(torch.arange(B, device=self.seen.device), self.columns.new_zeros(B, K))
        own = torch.eye(K, dtype=torch.bool, device=self.seen.device).expand(B, K, K)
        self.seen = torch.cat([self.seen, own], dim=2)
        self.columns = torch.cat([self.columns, self.columns.new_full((K,), self.length)])
        self.length += 1

    def mix(self, i: int, layer: Layer, x: Tensor, order: PositionalEncoding) -> Tensor:
        """What layer i makes of the last tokens and what it keeps: (B, K, d_model) -> (B, K, d_model)."""
        B, K, d_model = x.shape
        if self.beside[i]:
            mixed, self.past[i] = layer.mix(x, self.past[i], self.sight_of_sentences(i, order))
            return mixed
        mixed, self.past[i] = layer.mix(x.reshape(B * K, 1, d_model), self.past[i], self.sight_of_rows(i, order))
        return mixed.view(B, K, d_model)

    def sight_of_sentences(self, i: int, order: PositionalEncoding) -> Sight:
        """What the last tokens see in layer i, those of a sentence side by side."""
        K = self.seen.shape[1]
        seen = None if len(self.columns) == self.length else self.seen[:, None]  # a single one sees all
        return Sight(self.columns[-K:], self.columns, seen=seen, order=order, layer=i)

    def sight_of_rows(self, i: int, order: PositionalEncoding) -> Sight:
        """The same where each hypothesis is a row."""
        places = torch.arange(self.length, device=self.columns.device)
        return Sight(places[-1:], places, order=order, layer=i)

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
