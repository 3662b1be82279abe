"""A constraint of beam search: which tokens may follow each hypothesis of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor


class Constraint(Protocol):
    """Follows the hypotheses of a batch of B sentences, K for each, in a vocabulary of V tokens."""

    def allowed(self) -> Tensor:
        """Return a mask of the tokens that may follow (B, K, V), true where they may."""

    def restrict(self, log_probs: Tensor, allowed: Tensor) -> Tensor:
        """Return log-probabilities of tokens (B, K, V) that may follow; -inf for the others."""

    def advance(self, origins: Tensor, tokens: Tensor) -> None:
        """Replace the hypotheses by continuations.

        Args:
            origins: index of the hypothesis that each one continues (B, K).
            tokens: the token that it adds (B, K).
        """

    def keep(self, rows: Sequence[int]) -> None:
        """Keep the sentences of these rows."""


# Makes the constraint of a batch from its sentences and the limits of its translations, in tokens.
Constrain = Callable[[Sequence[Sequence[int]], Sequence[int]], Constraint]
