"""Latent attention: keys and values that are made from a small vector of each token."""

from __future__ import annotations

import torch
from torch import Tensor

from ablate.config import ModelConfig
from ablate.model.attention import AttentionMechanism, FullAttention, LocalAttention
from ablate.model.attention_context import AttentionContext
from ablate.model.kv_cache import KeyValues, Latents
from ablate.model.layers import Linear
from ablate.model.multi_head import AttentionState, MultiHeadAttention
from ablate.model.norms import RMSNorm
from ablate.model.positions import PositionalEncoding, RotaryPositions
from ablate.parts.attention import shared_entries


class LatentAttention(MultiHeadAttention):
    """Keys and values from a latent vector of `kv_rank` entries, beside rotated entries of the keys
    that all heads share (DeepSeek-V2, 2024, section 2.1; DeepSeek-V3).
    """

    def _make_projections(self, c: ModelConfig, init: torch.Generator, bias: bool) -> None:
        assert c.kv_rank is not None
        self.rank = c.kv_rank
        self.shared = shared_entries(c)
        self.sizes = [c.d_k - self.shared, c.d_v]
        inner = c.d_model if c.query_rank is None else c.query_rank
        if c.query_rank is not None:
            self.down_Q = Linear(c.d_model, inner, init, bias)
            self.norm_down_Q = RMSNorm(inner)
        self.has_query_rank = c.query_rank is not None
        self.W_Q = Linear(inner, self.h * c.d_k, init, bias and not self.has_query_rank)
        self.down_KV = Linear(c.d_model, self.rank + self.shared, init, bias)
        self.norm_down_KV = RMSNorm(self.rank)
        self.W_KV = Linear(self.rank, self.h * sum(self.sizes), init, bias=False)

    @property
    def values_from(self) -> Linear:
        """The projection that makes keys and values."""
        return self.W_KV

    def project(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values of x (B, T, d_model), each (B, T, h * d)."""
        return self._expanded(*self._compressed(x))

    def _compressed(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, T, h * d_k), latent vectors (B, T, rank) and shared entries of keys."""
        Q = self.W_Q(self.norm_down_Q(self.down_Q(x)) if self.has_query_rank else x)
        latent, shared = self.down_KV(x).split([self.rank, self.shared], dim=-1)
        return Q, self.norm_down_KV(latent), shared

    def _expanded(self, Q: Tensor, latent: Tensor, shared: Tensor) -> list[Tensor]:
        """Queries, keys and values, each (B, T, h * d)."""
        up = self.W_KV(latent).unflatten(2, (self.h, -1))
        own, V = up.split(self.sizes, dim=-1)  # (B, T, h, d)
        shared = shared[:, :, None].expand(-1, -1, self.h, -1)  # the entries that are rotated
        K = torch.cat([shared.to(own.dtype), own], dim=-1)
        return [Q, K.flatten(2), V.flatten(2)]


class AbsorbedLatentAttention(LatentAttention):
    """Latent attention whose cache holds the latent vectors and the shared entries.

    A query that is brought to the size of the latent vector reads them as keys and as values, and
    the values of a head are made of what it has read (DeepSeek-V2, section 2.1.2).
    """

    def forward(
        self, x: Tensor, past: AttentionState | None, context: AttentionContext
    ) -> tuple[Tensor, AttentionState]:
        """(B, T, d_model) -> (B, T, d_model), and the latent vectors of the past and of x."""
        Q, latent, shared = self._compressed(x)
        # Detached: it serves decoding alone, and training would keep it for the backward pass.
        joined = torch.cat([shared, latent.to(shared.dtype)], dim=-1)[:, None].detach()
        new = context.rotate(joined)  # (B, 1, T, shared + rank)
        context = self._of_call(context, x)
        if past is None:
            Q, K, V = self._expanded(Q, latent, shared)
            key_values = self._key_values(K, V, context)
            heads = self._attend(self._queries(Q, context), key_values, context)
            return self._output(heads, context), AttentionState(Latents(new))
        memory = past.memory.append(new)
        keys = memory.tensor.expand(-1, self.h, -1, -1)
        of_keys, of_values = self.W_KV.weight.unflatten(0, (self.h, -1)).split(self.sizes, dim=1)
        placed, own = self._queries(Q, context).split([self.shared, self.sizes[0]], dim=-1)
        Q = torch.cat([placed, own @ of_keys.to(own.dtype)], dim=-1)
        read = KeyValues(keys, keys[..., self.shared :])
        heads = self._attend(Q, read, context) @ of_values.mT  # (B, h, T, d_v)
        return self._output(heads, context), AttentionState(memory)


def is_absorbed(
    c: ModelConfig, mechanism: AttentionMechanism, encoding: PositionalEncoding
) -> bool:
    """Whether keys and values are linear in the latent vectors when they are attended to: nothing
    changes them after they are made, but the rotation of the shared entries.
    """
    # A class of one's own may rotate all of a key.
    adds_nothing = type(encoding).rotate is PositionalEncoding.rotate
    has_place = adds_nothing or type(encoding) is RotaryPositions
    is_plain = type(mechanism) in (FullAttention, LocalAttention)
    return is_plain and has_place and not encoding.acts_on_scores and c.has_plain_keys
