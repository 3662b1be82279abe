"""Token mixers, the sub-layers that mix the positions of a sequence: their interface, LSTM and GRU.

multi_head.py has self-attention, recurrent_mixers.py all other mixers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ablate.config import ModelConfig
from ablate.model.attention_context import AttentionContext
from ablate.model.kv_cache import BatchState


class TokenMixer(nn.Module):
    """Base of the sub-layers that mix the positions of a sequence.

    Attributes:
        supports_query_masks: whether it applies `context.query_mask`. If so, beam search decodes
            the hypotheses of a sentence as queries over one cache; otherwise each hypothesis is a
            row of the batch.
        needs_lengths: whether it reads `context.lengths` if sentences are padded.
    """

    supports_query_masks = False
    needs_lengths = False

    def forward(self, x: Tensor, past: Any, context: AttentionContext) -> tuple[Tensor, Any]:
        """Mix the positions of x with each other and with earlier positions.

        Args:
            x: (B, T, d_model).
            past: the state after earlier positions; None if there are none.
            context: masks and positions.

        Returns:
            (B, T, d_model), and the state after x: a `BatchState`, or any object with a method
            `select(rows)` that returns the state of some rows of the batch.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class RecurrentState(BatchState):
    """The state after the last token (B, 1, d_model): h of a GRU, (h, c) of an LSTM."""

    hidden: Tensor | tuple[Tensor, ...]


class RecurrentNetwork(TokenMixer):
    """A recurrent network of torch, of width d_model, instead of self-attention (sections 1, 4).

    In an encoder it runs in both directions, each with half of the width. It never runs in bf16: on
    a CPU, torch's bf16 kernel accepts no fp32 weights, and on a GPU, cuDNN would round to fp16, in
    which gradients vanish unless the loss is scaled.
    """

    needs_lengths = True
    network: ClassVar[type[nn.LSTM] | type[nn.GRU]]

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__()
        d_model = config.d_model
        width = d_model // (1 if causal else 2)
        self.cells = self.network(d_model, width, batch_first=True, bidirectional=not causal)
        for parameter in self.cells.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5, generator=init)

    def forward(
        self, x: Tensor, past: RecurrentState | None, context: AttentionContext
    ) -> tuple[Tensor, RecurrentState]:
        """(B, T, d_model) -> (B, T, d_model), and the state after each sentence's last token."""
        with torch.autocast(x.device.type, enabled=False):
            return self._run(x.to(next(self.cells.parameters()).dtype), past, context)

    def _run(
        self, x: Tensor, past: RecurrentState | None, context: AttentionContext
    ) -> tuple[Tensor, RecurrentState]:
        if past is not None:
            out, state = self.cells(x, _transposed(past.hidden))
        elif context.key_mask is None:
            out, state = self.cells(x)
        else:
            lengths = context.lengths  # (B,)
            if lengths is None:
                lengths = context.key_mask.flatten(1).sum(1).cpu()
            # Packed, so that the backward direction begins at the last token, not in padding.
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            out, state = self.cells(packed)
            out, _ = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
        return out, RecurrentState(_transposed(state))


def _transposed(state: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """Swap the first two axes of each tensor: in torch's states the batch is the second axis."""
    if isinstance(state, Tensor):
        return state.transpose(0, 1)
    return tuple(x.transpose(0, 1) for x in state)


class LSTM(RecurrentNetwork):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997)."""

    network = nn.LSTM


class GRU(RecurrentNetwork):
    """Gated recurrent units (Cho et al., 2014); as in torch, the reset follows the product."""

    network = nn.GRU
