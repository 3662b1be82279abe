"""Multi-head attention (section 3.2.2), with head sizes that are free of d_model / h."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ablate.config import ModelConfig
from ablate.kernels.linear import linears
from ablate.model.attention_context import AttentionContext
from ablate.model.growable_tensor import GrowableTensor
from ablate.model.layers import Dropout, Linear
from ablate.model.mechanisms import Mechanism
from ablate.model.token_mixer import TokenMixer


@dataclass(frozen=True)
class KeysValues:
    """Projected keys (B, g, S, d_k) and values (B, g, S, d_v) of g heads."""

    K: Tensor
    V: Tensor

    def select(self, rows: Tensor) -> KeysValues:
        """The keys and values of these rows of the batch, in this order."""
        return KeysValues(self.K.index_select(0, rows), self.V.index_select(0, rows))

    def append(self, later: KeysValues) -> Past:
        """These and later ones, along the sequence."""
        return Past(GrowableTensor.of(self.K), GrowableTensor.of(self.V)).append(later)


@dataclass(frozen=True)
class Past:
    """Keys and values that grow position by position."""

    keys: GrowableTensor
    values: GrowableTensor

    @property
    def K(self) -> Tensor:
        """(B, g, S, d_k)."""
        return self.keys.tensor

    @property
    def V(self) -> Tensor:
        """(B, g, S, d_v)."""
        return self.values.tensor

    def append(self, later: KeysValues) -> Past:
        """These and later ones."""
        return Past(self.keys.append(later.K), self.values.append(later.V))

    def select(self, rows: Tensor) -> Past:
        """Those of these rows of the batch, in this order."""
        return Past(self.keys.select(rows), self.values.select(rows))


class MultiHeadAttention(TokenMixer):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O; projections without biases, as the paper has them.

    With fewer heads of keys and values than of queries, each serves a group of neighbouring query heads.
    """

    def __init__(
        self, config: ModelConfig, n_heads: int, mechanism: Mechanism, init: torch.Generator, random: torch.Generator
    ) -> None:
        super().__init__()
        c = config
        self.h, self.g = n_heads, c.n_kv_heads or n_heads
        self.scale = c.d_k**-0.5 if c.attention_scale == "1/sqrt(d_k)" else 1.0
        self.W_Q = Linear(c.d_model, self.h * c.d_k, init, bias=c.attention_bias)
        self.W_K = Linear(c.d_model, self.g * c.d_k, init, bias=c.attention_bias)
        self.W_V = Linear(c.d_model, self.g * c.d_v, init, bias=c.attention_bias)
        self.W_O = Linear(self.h * c.d_v, c.d_model, init, bias=c.attention_bias)
        self.mechanism = mechanism
        self.takes_seen = mechanism.takes_seen
        self.dropout = Dropout(c.attention_dropout, random)
        self.watch: Callable[[Tensor], None] | None = None  # is shown the weights (B, h, T, S)
        self.gate: Tensor | None = None  # (h,), what each head's output is multiplied by

    def keys_values(self, x: Tensor, sight: AttentionContext) -> KeysValues:
        """(B, S, d_model), whose places are the queries of `sight` -> keys and values, to attend to once or often."""
        K, V = self._projected(x, self.W_K, self.W_V)
        return KeysValues(self._rotated(K, sight), V)

    def forward(
        self, x: Tensor, past: KeysValues | Past | None, sight: AttentionContext
    ) -> tuple[Tensor, KeysValues | Past]:
        """Self-attention: each position of x over those of the past and of x itself.

        Args:
            x: (B, T, d_model).
            past: keys and values of earlier positions; None where there are none.
            sight: what may be seen.

        Returns:
            (B, T, d_model), and the keys and values with those of x.
        """
        Q, K, V = self._projected(x, self.W_Q, self.W_K, self.W_V)
        now = KeysValues(self._rotated(K, sight), V)
        seen = now if past is None else past.append(now)
        return self.attend(self._rotated(Q, sight), seen, sight), seen

    def over(self, x: Tensor, memory: KeysValues | Past, sight: AttentionContext) -> Tensor:
        """Attention of each position of x (B, T, d_model) over the memory -> (B, T, d_model)."""
        (Q,) = self._projected(x, self.W_Q)
        return self.attend(self._rotated(Q, sight), memory, sight)

    def _projected(self, x: Tensor, *by: Linear) -> list[Tensor]:
        """The heads (B, heads, T, d) of each projection of x (B, T, d_model)."""
        sizes = {self.W_Q: self.h, self.W_K: self.g, self.W_V: self.g}
        outs = linears(x, [(W.weight, W.bias) for W in by])
        return [out.unflatten(2, (sizes[W], -1)).transpose(1, 2) for W, out in zip(by, outs, strict=True)]

    def _rotated(self, heads: Tensor, sight: AttentionContext) -> Tensor:
        return heads if sight.order is None else sight.order.rotate(heads, sight.queries).to(heads.dtype)

    def attend(self, Q: Tensor, memory: KeysValues | Past, sight: AttentionContext) -> Tensor:
        """Of queries (B, h, T, d_k) over the memory -> (B, T, d_model)."""
        K, V = (self._shared(heads) for heads in (memory.K, memory.V))
        sight = replace(sight, scale=self.scale, dropout=self.dropout, watch=self.watch)
        heads = _attend(self.mechanism, Q, K, V, sight)
        if self.gate is not None:
            heads = heads * self.gate[:, None, None]
        return self.W_O(heads.transpose(1, 2).flatten(2))  # of (B, T, h * d_v)

    def _shared(self, heads: Tensor) -> Tensor:
        return heads if self.g == self.h else heads.repeat_interleave(self.h // self.g, dim=1)  # (B, g -> h, S, d)


def _attend(mechanism: Mechanism, Q: Tensor, K: Tensor, V: Tensor, sight: AttentionContext) -> Tensor:
    """The mechanism, in fp32 also where the products around it are in bf16: everywhere on a CPU, else unless it says.

    It is a small part of the work, and on a CPU torch's bf16 kernel is many times slower at sentences' lengths
    (benchmarks/LOG.md).
    """
    if Q.dtype == torch.bfloat16 and not (Q.is_cuda and mechanism.takes_bf16):
        Q, K, V = Q.float(), K.float(), V.float()
    with torch.autocast(Q.device.type, enabled=False):
        return mechanism(Q, K, V, sight)
