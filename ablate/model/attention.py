"""Attention (section 3.2): the mechanisms of one head, and multi-head attention around them.

A mechanism maps Q (B, h, T, d_k), K (B, h, S, d_k) and V (B, h, S, d_v) to heads (B, h, T, d_v). To
add one, write a class here and name it in MECHANISMS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.config.cost import gate_width
from ablate.config.parametrization import score_scale
from ablate.config.variants import LINEAR_CHUNK
from ablate.kernels.device import on_gpu
from ablate.kernels.linear import linears
from ablate.model.attention_context import AttentionContext
from ablate.model.kv_cache import GrowingKeyValues, KeyValues
from ablate.model.layers import Dropout, Linear
from ablate.model.norms import RMSNorm, UnitNorm
from ablate.model.token_mixer import TokenMixer

EPS = 1e-6  # added to sums of linear attention's weights, which may all be 0, as its authors do


class AttentionMechanism(nn.Module):
    """Base of all mechanisms.

    Attributes:
        forms_scores: whether it has a score for each pair of tokens, and passes them to
            `context.weights`, which caps them and adds sinks.
        supports_bias: whether it adds `context.bias` to its scores and `context.values` to its
            heads. Positional encodings that have these are refused beside a mechanism that does
            not.
        supports_bf16: whether Q, K and V may be in bf16 on a GPU; else they are converted to fp32.
        supports_query_masks: whether it applies all of `context.mask`, which may differ between
            queries. The hypotheses of a sentence are then decoded as queries side by side;
            otherwise each is a row of the batch.
    """

    forms_scores = True
    supports_bias = False
    supports_bf16 = False
    supports_query_masks = False

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext) -> Tensor:
        """Q (B, h, T, d_k), K (B, h, S, d_k), V (B, h, S, d_v) -> heads (B, h, T, d_v)."""
        raise NotImplementedError("define forward(self, Q, K, V, context)")


class FullAttention(AttentionMechanism):
    """Scaled dot-product attention (3.2.1, eq. 1): softmax(scale * Q K^T) V over every key that is
    not masked.
    """

    supports_bias = True
    supports_bf16 = True
    supports_query_masks = True
    window: int | None = None

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v)."""
        if context.is_plain:
            # torch's `is_causal` takes the first query to be at the first key, so it holds for
            # whole sequences alone.
            causal = context.causal and self.window is None and Q.shape[2] == K.shape[2]
            mask = None if causal else context.mask(self.window)
            return F.scaled_dot_product_attention(
                Q, K, V, attn_mask=mask, is_causal=causal, scale=context.scale
            )
        dtype = V.dtype
        # The positional encoding's own tensors are fp32 (fp64 in tests).
        Q, K, V = (
            x.to(torch.promote_types(dtype, torch.float32)) for x in (Q * context.scale, K, V)
        )
        scores = Q @ K.transpose(-1, -2)  # (B, h, T, S)
        bias = context.bias(Q)
        weights = context.weights(scores if bias is None else scores + bias, self.window)
        heads = weights @ V  # (B, h, T, d_v)
        added = context.values(weights)
        return (heads if added is None else heads + added).to(dtype)


class LocalAttention(FullAttention):
    """Scaled dot-product attention over the keys at most `attention_window` tokens away."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.window = config.attention_window


class LinearAttention(AttentionMechanism):
    """phi(Q) (phi(K)^T V) over its sum, with phi(x) = elu(x) + 1: linear in length (Katharopoulos
    et al., 2020).
    """

    forms_scores = False

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v)."""
        Q, K = F.elu(Q) + 1, F.elu(K) + 1
        decoding = context.causal and Q.shape[2] != K.shape[2]
        if context.on_weights is not None or decoding:
            return self._by_weights(Q, K, V, context)
        if context.key_mask is not None:
            K = K * context.key_mask.transpose(-1, -2)  # padding has weight 0
        V = torch.cat(
            [V, torch.ones_like(V[..., :1])], dim=-1
        )  # (B, h, S, d_v + 1): the last column sums the weights
        sums = (
            _causal_sums(Q, K, V) if context.causal else Q @ (K.transpose(-1, -2) @ V)
        )  # (B, h, T, d_v + 1)
        return sums[..., :-1] / (sums[..., -1:] + EPS)

    def _by_weights(self, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext) -> Tensor:
        """Heads computed from the weights (B, h, T, S), which `forward` otherwise never forms."""
        weights, mask = Q @ K.transpose(-1, -2), context.mask()
        weights = weights if mask is None else weights * mask
        return context.drop(weights / (weights.sum(-1, keepdim=True) + EPS)) @ V


def _causal_sums(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Sum over s <= t of (Q_t . K_s) V_s, in chunks; earlier chunks enter through their sum K^T V
    (B, h, d_k, d_v).
    """
    before = torch.zeros(*K.shape[:2], K.shape[-1], V.shape[-1], dtype=K.dtype, device=K.device)
    out = []
    for q, k, v in zip(
        Q.split(LINEAR_CHUNK, 2), K.split(LINEAR_CHUNK, 2), V.split(LINEAR_CHUNK, 2), strict=True
    ):
        # In chunks, because all prefix sums at once would take T x d_k x d_v numbers for each head.
        out.append((q @ k.transpose(-1, -2)).tril() @ v + q @ before)
        before = before + k.transpose(-1, -2) @ v
    return torch.cat(out, dim=2)


MECHANISMS: dict[str, Callable[[ModelConfig], AttentionMechanism]] = {
    "full": FullAttention,
    "local": LocalAttention,
    "linear": LinearAttention,
}


class MultiHeadAttention(TokenMixer):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (3.2.2); projections without biases, as
    in the paper.

    Head sizes are independent of d_model / h. With g < h heads of keys and values, each is shared
    by a group of neighboring query heads (Ainslie et al., 2023).

    Attributes:
        on_weights: called with the attention weights (B, h, T, S); for analysis.
        gate: factor of each head's output, (h,); for analysis.
    """

    def __init__(
        self,
        config: ModelConfig,
        n_heads: int,
        mechanism: AttentionMechanism,
        init: torch.Generator,
        random: torch.Generator,
    ) -> None:
        super().__init__()
        c = config
        self.h, self.g = n_heads, c.n_kv_heads or n_heads
        self.scale = score_scale(c)
        bias = bool(c.attention_bias)
        self.W_Q = Linear(c.d_model, self.h * c.d_k, init, bias)
        self.W_K = Linear(c.d_model, self.g * c.d_k, init, bias)
        self.W_V = Linear(c.d_model, self.g * c.d_v, init, bias)
        self.W_O = Linear(self.h * c.d_v, c.d_model, init, bias=c.attention_bias is True)
        width = gate_width(c, n_heads)
        self.W_G = Linear(c.d_model, width, init, bias) if width else None
        self.norm_Q = query_norm(c.qk_norm, self.h, c.d_k)
        self.norm_K = query_norm(c.qk_norm, self.g, c.d_k)
        self.score_cap = c.score_cap
        has_sinks = c.attention_sinks and mechanism.forms_scores
        self.sinks = nn.Parameter(torch.zeros(n_heads)) if has_sinks else None
        self.mechanism = mechanism
        self.supports_query_masks = mechanism.supports_query_masks
        self.dropout = Dropout(c.attention_dropout, random)
        self.on_weights: Callable[[Tensor], None] | None = None
        self.gate: Tensor | None = None

    def forward(
        self, x: Tensor, past: KeyValues | GrowingKeyValues | None, context: AttentionContext
    ) -> tuple[Tensor, KeyValues | GrowingKeyValues]:
        """Self-attention: every position of x attends to the past and to x.

        Args:
            x: (B, T, d_model).
            past: keys and values of earlier positions; None where there are none.
            context: masks and positions.

        Returns:
            (B, T, d_model), and the keys and values of the past and of x.
        """
        Q, K, V = self._project(x, self.W_Q, self.W_K, self.W_V)
        new = KeyValues(self._rotate(_normed(self.norm_K, K), context), V)
        key_values = new if past is None else past.append(new)
        Q = self._rotate(_normed(self.norm_Q, Q), context)
        return self._attend(x, Q, key_values, context), key_values

    def key_values(self, x: Tensor, context: AttentionContext) -> KeyValues:
        """Keys and values of x (B, S, d_model), whose positions are `context.query_positions`."""
        K, V = self._project(x, self.W_K, self.W_V)
        return KeyValues(self._rotate(_normed(self.norm_K, K), context), V)

    def cross_attend(
        self, x: Tensor, memory: KeyValues | GrowingKeyValues, context: AttentionContext
    ) -> Tensor:
        """Every position of x (B, T, d_model) attends to the memory -> (B, T, d_model)."""
        (Q,) = self._project(x, self.W_Q)
        return self._attend(x, self._rotate(_normed(self.norm_Q, Q), context), memory, context)

    def _project(self, x: Tensor, *projections: Linear) -> list[Tensor]:
        """X (B, T, d_model) -> heads (B, h or g, T, d) of each projection."""
        heads = {self.W_Q: self.h, self.W_K: self.g, self.W_V: self.g}
        outs = linears(x, [(W.weight, W.bias) for W in projections])  # (B, T, heads * d) each
        return [
            out.unflatten(2, (heads[W], -1)).transpose(1, 2)
            for W, out in zip(projections, outs, strict=True)
        ]

    def _rotate(self, heads: Tensor, context: AttentionContext) -> Tensor:
        if context.positional_encoding is None:
            return heads
        return context.positional_encoding.rotate(heads, context.query_positions).to(heads.dtype)

    def _attend(
        self,
        x: Tensor,
        Q: Tensor,
        memory: KeyValues | GrowingKeyValues,
        context: AttentionContext,
    ) -> Tensor:
        """Queries (B, h, T, d_k) of x (B, T, d_model) attend to the memory -> (B, T, d_model)."""
        K, V = (self._repeat(heads) for heads in (memory.K, memory.V))
        context = replace(
            context,
            x=x,
            scale=self.scale,
            dropout=self.dropout,
            on_weights=self.on_weights,
            score_cap=self.score_cap,
            sinks=self.sinks,
        )
        heads = _apply(self.mechanism, Q, K, V, context)  # (B, h, T, d_v)
        if self.gate is not None:
            heads = heads * self.gate[:, None, None]
        if self.W_G is not None:
            gates = self.W_G(x).unflatten(2, (self.h, -1)).transpose(1, 2)  # (B, h, T, 1 or d_v)
            heads = heads * gates.sigmoid()
        return self.W_O(heads.transpose(1, 2).flatten(2))  # (B, T, h * d_v) -> (B, T, d_model)

    def _repeat(self, heads: Tensor) -> Tensor:
        """(B, g, S, d) -> (B, h, S, d): each head of keys or values once for every query head of
        its group.
        """
        return heads if self.g == self.h else heads.repeat_interleave(self.h // self.g, dim=1)


class WidthNorm(RMSNorm):
    """RMSNorm over the entries of all heads together: (B, h, T, d) -> the same."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, h, T, d) -> (B, h, T, d)."""
        h = x.shape[1]
        return super().forward(x.transpose(1, 2).flatten(2)).unflatten(2, (h, -1)).transpose(1, 2)


def query_norm(kind: str, heads: int, size: int) -> nn.Module:
    """The norm of queries or of keys (B, heads, T, size), by `qk_norm`."""
    if kind == "head":
        return RMSNorm(size)
    if kind == "width":
        return WidthNorm(heads * size)
    return UnitNorm() if kind == "unit" else nn.Identity()


def _normed(norm: nn.Module, heads: Tensor) -> Tensor:
    """Queries or keys (B, h, T, d_k) after their norm, in the type that they have: that of V."""
    normed: Tensor = norm(heads)
    return normed.to(heads.dtype)


def _apply(
    mechanism: AttentionMechanism, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext
) -> Tensor:
    """Apply the mechanism in fp32, also in autocast; in bf16 on a GPU where the mechanism supports
    it.

    Attention is a small part of the work, and on a CPU torch's bf16 kernel is many times slower at
    the lengths of sentences (benchmarks/LOG.md, 2026-11-21, how workers are set up).
    """
    if Q.dtype == torch.bfloat16 and not (on_gpu(Q) and mechanism.supports_bf16):
        Q, K, V = Q.float(), K.float(), V.float()
    with torch.autocast(Q.device.type, enabled=False):
        return mechanism(Q, K, V, context)
