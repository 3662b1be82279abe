"""One causal stack over source and target in a row, as language models are made (Radford et al., 2018).

The sequence is the source with its end mark, then the begin mark and the target. The loss is on the
target alone; what the stack makes of the source is only looked at.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ablate.model.attention_context import AttentionContext
from ablate.model.cache import Cache
from ablate.model.parts import ModelBuilder
from ablate.model.stack import Layer, Stack
from ablate.model.transformer import Transformer


class Continued(Cache):
    """The past of B sentences: their sources, and what follows them.

    A token's place is counted in its own sequence, so the target's follow its source's whatever the padding.
    """

    def __init__(self, stack: Stack[Layer], past: list[Any], source: Tensor, K: int) -> None:
        super().__init__(stack, past, source, K)
        self.lengths = (source != 0).sum(1)  # (B,)
        self.of_source = torch.arange(source.shape[1], device=source.device)  # (S,)

    def sight_of_sentences(self) -> AttentionContext:
        """What the last tokens see: the source but not its padding, and their own ancestors."""
        B, K, _ = self.seen.shape
        keys = torch.cat([self.of_source.expand(B, -1), self.lengths[:, None] + self.columns], dim=1)
        seen = torch.cat([self._real(self.lengths)[:, None].expand(-1, K, -1), self.seen], dim=2)
        return AttentionContext(keys[:, -K:], keys, seen=seen[:, None])

    def sight_of_rows(self) -> AttentionContext:
        """The same where each hypothesis is a row."""
        lengths = self.lengths.repeat_interleave(self.seen.shape[1])
        of_target = torch.arange(self.length, device=lengths.device)
        keys = torch.cat([self.of_source.expand(len(lengths), -1), lengths[:, None] + of_target], dim=1)
        real = torch.cat([self._real(lengths), torch.ones_like(keys[:, -self.length :], dtype=torch.bool)], dim=1)
        return AttentionContext(keys[:, -1:], keys, real[:, None, None, :])

    def leave(self, stay: Tensor) -> None:
        """Go on with some sentences."""
        self.lengths = self.lengths.index_select(0, stay)

    def _real(self, lengths: Tensor) -> Tensor:
        return self.of_source < lengths[:, None]  # (B, S)


class DecoderOnly(Transformer):
    """A single causal stack. What tells it where the source ends is the two marks between the sides."""

    def __init__(self, parts: ModelBuilder) -> None:
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
        """Token ids (B, S) -> what the stack makes of them."""
        real = source != 0
        _, past = self._stack(source, None if bool(real.all()) else real[:, None, None, :])
        return Continued(self.decoder, past, source, K)

    def step(self, tokens: Tensor, cache: Continued) -> Tensor:
        """One step: tokens (B, K) -> states (B, K, d_model)."""
        cache.grow(tokens.shape[1])
        places = (cache.lengths + cache.length - 1)[:, None].expand(tokens.shape)
        x = self.positions.embed(self.embedding(tokens), places)
        for i, layer in enumerate(self.decoder):
            x = layer.feed(cache.mix(i, layer, x, self.positions))
        return self.decoder_norm(x)

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
            sight = AttentionContext(places, places, real, causal=True, order=self.positions, layer=i)
            x, left = layer.mix(x, None, sight)
            x = layer.feed(x)
            past.append(left)
        return self.decoder_norm(x), past
