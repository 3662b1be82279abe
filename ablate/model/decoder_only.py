"""One causal stack over source and target in a row, as language models are made (Radford et al., 2018).

The sequence is the source with its end mark, then the begin mark and the target. The loss is on the
target alone; what the stack makes of the source is only looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ablate.model.parts import Parts
from ablate.model.sight import Sight
from ablate.model.stack import Layer, Stack
from ablate.model.transformer import Transformer, rows_of


@dataclass
class Continued:
    """Each layer's past of B * K hypotheses: their sources, S places wide, and `length` tokens of target.

    lengths: tokens of each row's source (B * K,).
    """

    past: list[Any]
    lengths: Tensor
    S: int
    length: int = 0

    def select(self, stay: Tensor, origins: Tensor) -> None:
        """Go on with some sentences and hypotheses; see Cache.select."""
        rows = rows_of(stay, origins)
        self.past = [layer.select(rows) for layer in self.past]
        self.lengths = self.lengths.index_select(0, rows)

    def sight(self) -> Sight:
        """What the next token of each row sees: its source and the target before it, but not its source's padding.

        A token's place is counted in its own sequence, so the target's follow its source's whatever the padding.
        """
        columns = torch.arange(self.S + self.length + 1, device=self.lengths.device)
        of_source = columns < self.S
        places = torch.where(of_source, columns, columns - self.S + self.lengths[:, None])  # (B * K, S + length + 1)
        real = ~of_source | (columns < self.lengths[:, None])
        return Sight(places[:, -1:], places, real[:, None, None, :])


class DecoderOnly(Transformer):
    """A single causal stack. What tells it where the source ends is the two marks between the sides."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.positions = parts.positions(causal=True)
        self.decoder = Stack(Layer(parts, self.positions, causal=True) for _ in range(parts.config.depths[1]))
        self.decoder_norm = parts.last_norm()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Token ids (B, S) and (B, T), padded with 0 at the end -> states of the target's places (B, T, d_model)."""
        lengths = (source != 0).sum(1)  # (B,)
        of_target = lengths[:, None] + torch.arange(target.shape[1], device=target.device)  # (B, T): their columns
        sequence = torch.nn.functional.pad(source, (0, target.shape[1]))  # (B, S + T)
        sequence = sequence.scatter(1, of_target, target)
        sequence = sequence[:, : int((lengths + (target != 0).sum(1)).max())]
        states, _ = self._stack(sequence)
        of_target = of_target.clamp(max=sequence.shape[1] - 1)  # columns of padding may lie beyond
        return states.gather(1, of_target[:, :, None].expand(-1, -1, states.shape[2]))

    def start(self, source: Tensor, K: int) -> Continued:
        """Token ids (B, S) -> what the stack makes of them, K times."""
        lengths = (source != 0).sum(1)
        real = None if bool((lengths == source.shape[1]).all()) else (source != 0)[:, None, None, :]
        _, past = self._stack(source, real)
        rows = torch.arange(len(source), device=source.device).repeat_interleave(K)
        return Continued([layer.select(rows) for layer in past], lengths[rows], source.shape[1])

    def step(self, tokens: Tensor, cache: Continued) -> Tensor:
        """One step: tokens (B, K) -> states (B, K, d_model)."""
        B, K = tokens.shape
        sight = cache.sight()
        x = self.positions.embed(self.embedding(tokens.view(B * K, 1)), sight.queries)
        for i, layer in enumerate(self.decoder):
            at = Sight(sight.queries, sight.keys, sight.real, order=self.positions, layer=i)
            x, cache.past[i] = layer.mix(x, cache.past[i], at)
            x = layer.feed(x)
        cache.length += 1
        return self.decoder_norm(x).view(B, K, -1)

    def _stack(self, sequence: Tensor, real: Tensor | None = None) -> tuple[Tensor, list[Any]]:
        """Token ids (B, L), padded at the end -> states (B, L, d_model), and each layer's past.

        Args:
            sequence: token ids.
            real: (B, 1, 1, L), true at tokens. Needed for a past: states of tokens never see what is behind them.
        """
        places = torch.arange(sequence.shape[1], device=sequence.device)
        x = self.embedding_dropout(self.positions.embed(self.embedding(sequence), places))
        past = []
        for i, layer in enumerate(self.decoder):
            sight = Sight(places, places, real, causal=True, order=self.positions, layer=i)
            x, left = layer.mix(x, None, sight)
            x = layer.feed(x)
            past.append(left)
        return self.decoder_norm(x), past
