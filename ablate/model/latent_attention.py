"""Latent attention, whose keys and values are projections of a small vector of each token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
    """Multi-head latent attention (DeepSeek-V2, 2024, section 2.1; DeepSeek-V3).

    Keys and values are projections of a latent vector of `kv_rank` entries. The rotated entries of
    the keys are projected from x instead, and shared by all heads.
    """

    def _make_projections(self, c: ModelConfig, init: torch.Generator, bias: bool) -> None:
        assert c.kv_rank is not None
        self.rank = c.kv_rank
        self.shared = shared_entries(c)
        self.sizes = [c.d_k - self.shared, c.d_v]
        self.down_Q: nn.Module = nn.Identity()
        self.norm_down_Q: nn.Module = nn.Identity()
        if c.query_rank is None:
            self.W_Q = Linear(c.d_model, self.h * c.d_k, init, bias)
        else:
            self.down_Q = Linear(c.d_model, c.query_rank, init, bias)
            self.norm_down_Q = RMSNorm(c.query_rank)
            self.W_Q = Linear(c.query_rank, self.h * c.d_k, init, bias=False)
        self.down_KV = Linear(c.d_model, self.rank + self.shared, init, bias)
        self.norm_down_KV = RMSNorm(self.rank)
        self.W_KV = Linear(self.rank, self.h * sum(self.sizes), init, bias=False)

    @property
    def value_projection(self) -> Linear:
        """The projection from latent vectors to keys and values."""
        return self.W_KV

    def project(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values of x (B, T, d_model), each (B, T, h * d)."""
        return self._expanded(*self._compressed(x))

    def _compressed(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, T, h * d_k), latent vectors (B, T, rank) and shared entries of the keys."""
        Q = self.W_Q(self.norm_down_Q(self.down_Q(x)))
        latent, shared = self.down_KV(x).split([self.rank, self.shared], dim=-1)
        return Q, self.norm_down_KV(latent), shared

    def _expanded(self, Q: Tensor, latent: Tensor, shared: Tensor) -> list[Tensor]:
        """Queries, keys and values, each (B, T, h * d)."""
        up = self.W_KV(latent).unflatten(2, (self.h, -1))
        head_entries, V = up.split(self.sizes, dim=-1)  # (B, T, h, d)
        shared = shared[:, :, None].expand(-1, -1, self.h, -1)
        K = torch.cat([shared.to(head_entries.dtype), head_entries], dim=-1)
        return [Q, K.flatten(2), V.flatten(2)]


class AbsorbedLatentAttention(LatentAttention):
    """Latent attention whose cache holds only latent vectors and the shared entries of keys.

    In decoding, the projection to keys is applied to the query, and the projection to values to the
    heads, so that the latent vectors serve as keys and as values (DeepSeek-V2, section 2.1.2).
    """

    def forward(
        self, x: Tensor, past: AttentionState | None, context: AttentionContext
    ) -> tuple[Tensor, AttentionState]:
        """(B, T, d_model) -> (B, T, d_model), and the latent vectors of the past and of x."""
        Q, latent, shared = self._compressed(x)
        # Detached: only decoding reads it, and its graph would take memory in training.
        joined = torch.cat([shared, latent.to(shared.dtype)], dim=-1)[:, None].detach()
        new = context.rotate(joined)  # (B, 1, T, shared + rank)
        context = self._call_context(context, x)
        if past is None:
            Q, K, V = self._expanded(Q, latent, shared)
            key_values = self._key_values(K, V, context)
            heads = self._attend(self._queries(Q, context), key_values, context)
            return self._output(heads, context), AttentionState(Latents(new))
        memory = past.memory.append(new)
        keys = memory.tensor.expand(-1, self.h, -1, -1)
        W_K, W_V = self.W_KV.weight.unflatten(0, (self.h, -1)).split(self.sizes, dim=1)
        rotated, others = self._queries(Q, context).split([self.shared, self.sizes[0]], dim=-1)
        Q = torch.cat([rotated, others @ W_K.to(others.dtype)], dim=-1)
        latents = KeyValues(keys, keys[..., self.shared :])
        heads = self._attend(Q, latents, context) @ W_V.mT  # (B, h, T, d_v)
        return self._output(heads, context), AttentionState(memory)


def attention_class(
    c: ModelConfig, mechanism: AttentionMechanism, encoding: PositionalEncoding
) -> type[MultiHeadAttention]:
    """The class of self-attention."""
    if c.kv_rank is None:
        return MultiHeadAttention
    return AbsorbedLatentAttention if _can_absorb(c, mechanism, encoding) else LatentAttention


def _can_absorb(
    c: ModelConfig, mechanism: AttentionMechanism, encoding: PositionalEncoding
) -> bool:
    """Whether keys and values are linear in the latent vectors, apart from the rotation of the
    shared entries of keys, so that projections may be moved to queries and heads.
    """
    if not c.has_plain_keys_and_values or encoding.acts_on_scores:
        return False
    # A user's encoding may rotate all entries of a key, not only the shared ones.
    rotates_nothing = type(encoding).rotate is PositionalEncoding.rotate
    if not rotates_nothing and type(encoding) is not RotaryPositions:
        return False
    return type(mechanism) in (FullAttention, LocalAttention)
