"""A constraint of beam search: which tokens may follow each hypothesis of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor


class Constraint(Protocol):
    """Says which of V tokens may follow the K hypotheses of each of B sentences."""

    def allowed(self) -> Tensor:
        """A mask (B, K, V), true at the tokens that may follow each hypothesis."""

    def restrict(self, log_probs: Tensor, allowed: Tensor) -> Tensor:
        """Log-probabilities (B, K, V), with -inf for tokens that may not follow."""

    def advance(self, origins: Tensor, tokens: Tensor) -> None:
        """Replace the hypotheses by continuations.

        Args:
            origins: index of the hypothesis that each one continues (B, K).
            tokens: the token that each one appends (B, K).
        """

    def select(self, rows: Sequence[int]) -> None:
        """Keep only the sentences of these rows."""


# (sentences of a batch, limit of each translation in tokens) -> constraint of the batch
Constrain = Callable[[Sequence[Sequence[int]], Sequence[int]], Constraint]
