"""What mixes the positions of a sequence with one another: self-attention, or something in its place."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ablate.model.attention_context import AttentionContext


class TokenMixer(nn.Module):
    """A sub-layer that sees the whole sequence, or, going on from a past, what is added to it.

    takes_seen: whether a position is mixed with those alone that `sight.seen` says, so that hypotheses of a sentence
        can stand side by side in it; else each is a row of its own.
    """

    takes_seen = False

    def forward(self, x: Tensor, past: Any, sight: AttentionContext) -> tuple[Tensor, Any]:
        """(B, T, d_model), and what earlier positions have left -> (B, T, d_model), and what these leave.

        What is left has `select(rows)`, the same for some rows of the batch.
        """
        raise NotImplementedError
