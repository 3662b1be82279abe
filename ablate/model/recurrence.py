"""Recurrence in the place of self-attention: the baseline that the paper left behind (sections 1 and 4)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ablate.model.attention_context import AttentionContext
from ablate.model.token_mixer import TokenMixer


@dataclass
class Recurrent:
    """The state (1, B, d_model) and the cell (1, B, d_model) after the last token."""

    state: Tensor
    cell: Tensor

    def select(self, rows: Tensor) -> Recurrent:
        """Those of these rows of the batch."""
        return Recurrent(self.state.index_select(1, rows), self.cell.index_select(1, rows))


class LSTM(TokenMixer):
    """A long short-term memory of width d_model (Hochreiter and Schmidhuber, 1997); both ways where it may look ahead.

    Looking both ways, each direction has half of the width. On a CPU its own products are in fp32 whatever the
    precision of those around it: torch's bf16 kernel there takes no fp32 weights.
    """

    def __init__(self, d_model: int, causal: bool, init: torch.Generator) -> None:
        super().__init__()
        width = d_model if causal else d_model // 2
        self.cells = nn.LSTM(d_model, width, batch_first=True, bidirectional=not causal)
        for parameter in self.cells.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5, generator=init)

    def forward(self, x: Tensor, past: Recurrent | None, sight: AttentionContext) -> tuple[Tensor, Recurrent]:
        """(B, T, d_model) -> (B, T, d_model), and the state after each sentence's last token."""
        device = x.device.type
        with torch.autocast(device, enabled=device != "cpu" and torch.is_autocast_enabled(device)):
            return self._run(x, past, sight)

    def _run(self, x: Tensor, past: Recurrent | None, sight: AttentionContext) -> tuple[Tensor, Recurrent]:
        if past is not None:
            out, (state, cell) = self.cells(x, (past.state, past.cell))
            return out, Recurrent(state, cell)
        if sight.real is None:
            out, (state, cell) = self.cells(x)
            return out, Recurrent(state, cell)
        lengths = sight.real.flatten(1).sum(1).cpu()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, (state, cell) = self.cells(packed)
        return pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0], Recurrent(state, cell)
