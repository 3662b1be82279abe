"""Attention (section 3.2): the mechanisms of one head, and multi-head attention around them.

A mechanism maps Q (B, h, T, d_k), K (B, h, S, d_k) and V (B, h, S, d_v) to heads (B, h, T, d_v). To
add one, write a class here and name it in ablate/parts/attention.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.kernels.device import on_gpu
from ablate.kernels.linear import linears
from ablate.model.attention_context import AttentionContext
from ablate.model.kv_cache import (
    BatchState,
    GrowableTensor,
    GrowingKeyValues,
    KeyValues,
    Latents,
)
from ablate.model.layers import Dropout, Linear, ParameterKinds
from ablate.model.norms import RMSNorm, UnitNorm
from ablate.model.positions import PositionalEncoding, RotaryPositions
from ablate.model.short_convolution import ShortConvolution, tokens_of
from ablate.model.token_mixer import TokenMixer
from ablate.parts.attention import (
    CONVOLUTION_WIDTH,
    LINEAR_CHUNK,
    gate_width,
    shared_entries,
)
from ablate.parts.initialization import score_scale

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

    def reset_parameters(self, init: torch.Generator) -> None:
        """Draw the initial weights of a built-in mechanism that has any."""

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
            # torch's `is_causal` has the first query at the first key: for whole sequences alone.
            causal = context.causal and self.window is None and Q.shape[2] == K.shape[2]
            causal = causal and context.query_mask is None
            mask = None if causal else context.mask(self.window)
            return F.scaled_dot_product_attention(
                Q, K, V, attn_mask=mask, is_causal=causal, scale=context.scale
            )
        # The positional encoding's own tensors are fp32 (fp64 in tests).
        dtype, precise = V.dtype, torch.promote_types(V.dtype, torch.float32)
        Q, K, V = (x.to(precise) for x in (Q * context.scale, K, V))
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


class DifferentialAttention(FullAttention):
    """The difference of the softmaxes of two heads, times the values of both, normalized (Ye et
    al., 2024, eq. 1 to 3). Head i is paired with head i + h / 2.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"lambdas": "gain"}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        # lambda_q1, lambda_k1, lambda_q2 and lambda_k2, one after another.
        self.lambdas = nn.Parameter(torch.zeros(4 * config.d_k))
        self.norm = UnitNorm()

    def reset_parameters(self, init: torch.Generator) -> None:
        """From N(0, 0.1^2), as in the paper."""
        nn.init.normal_(self.lambdas, std=0.1, generator=init)

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v)."""
        of_pairs = torch.cat(V.chunk(2, dim=1), dim=-1).repeat(1, 2, 1, 1)  # (B, h, S, 2 d_v)
        first, second = super().forward(Q, K, of_pairs, context).chunk(2, dim=1)
        q_1, k_1, q_2, k_2 = self.lambdas.view(4, -1)
        initial = 0.8 - 0.6 * math.exp(-0.3 * context.layer)
        share = (q_1 @ k_1).exp() - (q_2 @ k_2).exp() + initial
        pairs = (1 - initial) * self.norm(first - share * second)  # (B, h / 2, T, 2 d_v)
        return pairs.unflatten(3, (2, -1)).transpose(2, 3).flatten(1, 2).to(V.dtype)


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
        # (B, h, S, d_v + 1): the last column sums the weights
        V = torch.cat([V, torch.ones_like(V[..., :1])], dim=-1)
        # (B, h, T, d_v + 1)
        sums = _causal_sums(Q, K, V) if context.causal else Q @ (K.transpose(-1, -2) @ V)
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
    chunks = (x.split(LINEAR_CHUNK, 2) for x in (Q, K, V))
    for q, k, v in zip(*chunks, strict=True):
        # In chunks, because all prefix sums at once would take T x d_k x d_v numbers for each head.
        out.append((q @ k.transpose(-1, -2)).tril() @ v + q @ before)
        before = before + k.transpose(-1, -2) @ v
    return torch.cat(out, dim=2)


@dataclass(frozen=True)
class ConvolvedKeyValues(BatchState):
    """Keys and values, and the last inputs of the convolution (B, width - 1, channels)."""

    key_values: KeyValues | GrowingKeyValues
    inputs: Tensor


class MultiHeadAttention(TokenMixer):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (3.2.2); projections without biases, as
    in the paper.

    Head sizes are independent of d_model / h. With g < h heads of keys and values, each is shared
    by a group of neighboring query heads (Ainslie et al., 2023).

    Attributes:
        value_parts: what is added to the values (model/values.py), in turn.
        on_weights: called with the attention weights (B, h, T, S); for analysis.
        gate: factor of each head's output, (h,); for analysis.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"sinks": "gain"}

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
        bias = c.attention_bias in (True, "inputs")
        self._make_projections(c, init, bias)
        has_output_bias = c.attention_bias in (True, "output")
        self.W_O = Linear(self.h * c.d_v, c.d_model, init, has_output_bias)
        width = gate_width(c, n_heads)
        self.W_G = Linear(c.d_model, width, init, bias) if width else None
        self.norm_Q = query_norm(c.qk_norm, self.h, c.d_k)
        self.norm_K = query_norm(c.qk_norm, self.g, c.d_k)
        self.value_parts = nn.ModuleList()
        self.convolution: ShortConvolution | None = None
        self.convolves_input = False
        self.excludes_own_value = c.exclude_own_value
        self.score_cap = c.score_cap
        has_sinks = c.attention_sinks and mechanism.forms_scores
        self.sinks = nn.Parameter(torch.zeros(n_heads)) if has_sinks else None
        self.mechanism = mechanism
        self.supports_query_masks = mechanism.supports_query_masks
        self.dropout = Dropout(c.attention_dropout, random)
        self.on_weights: Callable[[Tensor], None] | None = None
        self.gate: Tensor | None = None

    def _make_projections(self, c: ModelConfig, init: torch.Generator, bias: bool) -> None:
        """Make the projections to queries, keys and values."""
        self.W_Q = Linear(c.d_model, self.h * c.d_k, init, bias)
        self.W_K = Linear(c.d_model, self.g * c.d_k, init, bias)
        self.W_V = Linear(c.d_model, self.g * c.d_v, init, bias)

    @property
    def values_from(self) -> Linear:
        """The projection that makes the values."""
        return self.W_V

    def add_convolution(self, of: str, channels: int, init: torch.Generator) -> None:
        """Convolve so many channels: of the input, or of queries, keys and values."""
        self.convolves_input = of == "input"
        self.convolution = ShortConvolution(channels, CONVOLUTION_WIDTH, init)
        self.supports_query_masks = False  # each hypothesis needs the last inputs of its own

    def forward(self, x: Tensor, past: Any, context: AttentionContext) -> tuple[Tensor, Any]:
        """Self-attention: every position of x attends to the past and to x.

        Args:
            x: (B, T, d_model).
            past: keys and values of earlier positions, with the inputs of a convolution where
                there is one; None where there are none.
            context: masks and positions.

        Returns:
            (B, T, d_model), and the keys and values of the past and of x.
        """
        if self.convolution is not None:
            return self._convolve(self.convolution, x, past, context)
        return self._mix(x, self.project(x), past, context)

    def project(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values of x (B, T, d_model), each (B, T, heads * d)."""
        return _projected(x, self.W_Q, self.W_K, self.W_V)

    def _convolve(
        self,
        convolution: ShortConvolution,
        x: Tensor,
        past: ConvolvedKeyValues | None,
        context: AttentionContext,
    ) -> tuple[Tensor, ConvolvedKeyValues]:
        """`forward`, with the convolution added to its input or to queries, keys and values."""
        before, key_values = (past.inputs, past.key_values) if past else (None, None)
        tokens = tokens_of(x, context)
        if self.convolves_input:
            convolved, inputs = convolution(x, before, tokens)
            x = x + convolved
            projected = self.project(x)
        else:
            projected = self.project(x)
            joined = torch.cat(projected, dim=-1)
            convolved, inputs = convolution(joined, before, tokens)
            widths = [part.shape[-1] for part in projected]
            projected = list((joined + convolved).split(widths, dim=-1))
        out, key_values = self._mix(x, projected, key_values, context)
        return out, ConvolvedKeyValues(key_values, inputs)

    def _mix(
        self,
        x: Tensor,
        projected: list[Tensor],
        past: KeyValues | GrowingKeyValues | None,
        context: AttentionContext,
    ) -> tuple[Tensor, KeyValues | GrowingKeyValues]:
        """Attention with the queries, keys and values of x, and with the past."""
        Q, K, V = projected
        for part in self.value_parts:
            V = part(V, x, context.earlier)
        new = self._key_values(K, V, context)
        key_values = new if past is None else past.append(new)
        own = new.V if self.excludes_own_value else None
        return self._attend(x, self._queries(Q, context), key_values, context, own), key_values

    def key_values(self, x: Tensor, context: AttentionContext) -> KeyValues:
        """Keys and values of x (B, S, d_model), whose positions are `context.query_positions`."""
        K, V = _projected(x, self.W_K, self.W_V)
        return self._key_values(K, V, context)

    def cross_attend(
        self, x: Tensor, memory: KeyValues | GrowingKeyValues, context: AttentionContext
    ) -> Tensor:
        """Every position of x (B, T, d_model) attends to the memory -> (B, T, d_model)."""
        (Q,) = _projected(x, self.W_Q)
        return self._attend(x, self._queries(Q, context), memory, context)

    def _queries(self, Q: Tensor, context: AttentionContext) -> Tensor:
        """(B, T, h * d_k) -> (B, h, T, d_k), with their norm and their positions."""
        return self._placed(self.norm_Q, self._heads(Q, self.h), context)

    def _key_values(self, K: Tensor, V: Tensor, context: AttentionContext) -> KeyValues:
        """The same for keys (B, S, g * d_k), and values (B, S, g * d_v), which have neither."""
        keys = self._placed(self.norm_K, self._heads(K, self.g), context)
        return KeyValues(keys, self._heads(V, self.g))

    def _heads(self, x: Tensor, count: int) -> Tensor:
        """(B, T, count * d) -> (B, count, T, d)."""
        return x.unflatten(2, (count, -1)).transpose(1, 2)

    def _placed(self, norm: nn.Module | None, heads: Tensor, context: AttentionContext) -> Tensor:
        """Queries or keys (B, h, T, d_k) with norm and positions, in their type, that of V."""
        if norm is not None:
            heads = norm(heads).to(heads.dtype)
        if context.positional_encoding is None:
            return heads
        return context.positional_encoding.rotate(heads, context.query_positions).to(heads.dtype)

    def _attend(
        self,
        x: Tensor,
        Q: Tensor,
        memory: KeyValues | GrowingKeyValues,
        context: AttentionContext,
        own: Tensor | None = None,
        widen: Tensor | None = None,
    ) -> Tensor:
        """Queries (B, h, T, d_k) of x (B, T, d_model) attend to the memory -> (B, T, d_model).

        `own` are the values of x (B, g, T, d_v) where heads lose their share along them. `widen`
        (h, rank, d_v) makes heads of those of latent vectors.
        """
        K, V = (self._repeat(heads) for heads in (memory.K, memory.V))
        context = context.changed(
            x=x,
            scale=self.scale,
            dropout=self.dropout,
            on_weights=self.on_weights,
            score_cap=self.score_cap,
            sinks=self.sinks,
        )
        heads = _apply(self.mechanism, Q, K, V, context)  # (B, h, T, d_v)
        if widen is not None:
            heads = heads @ widen
        if own is not None:
            direction = F.normalize(self._repeat(own).to(heads.dtype), dim=-1)
            heads = heads - (heads * direction).sum(-1, keepdim=True) * direction
        if self.gate is not None:
            heads = heads * self.gate[:, None, None]
        if self.W_G is not None:
            gates = self.W_G(x).unflatten(2, (self.h, -1)).transpose(1, 2)  # (B, h, T, 1 or d_v)
            heads = heads * gates.sigmoid()
        return self.W_O(heads.transpose(1, 2).flatten(2))  # (B, T, h * d_v) -> (B, T, d_model)

    def _repeat(self, heads: Tensor) -> Tensor:
        """(B, g, S, d) -> (B, h, S, d): each head once for every query head of its group."""
        return heads if self.g == self.h else heads.repeat_interleave(self.h // self.g, dim=1)


class LatentAttention(MultiHeadAttention):
    """Keys and values from a latent vector of `kv_rank` entries, beside rotated entries of the keys
    that all heads share (DeepSeek-V2, 2024, section 2.1; DeepSeek-V3).

    The cache holds the latent vectors and the shared entries. A query that is brought to the size
    of the latent vector reads them as keys and as values, and the values of a head are made of what
    it has read (section 2.1.2). Where something changes keys or values after they are made, such as
    their norm or their convolution, the cache holds them.
    """

    def _make_projections(self, c: ModelConfig, init: torch.Generator, bias: bool) -> None:
        assert c.kv_rank is not None
        self.rank, self.shared = c.kv_rank, shared_entries(c)
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

    def forward(self, x: Tensor, past: Any, context: AttentionContext) -> tuple[Tensor, Any]:
        """(B, T, d_model) -> (B, T, d_model), and the latent vectors of the past and of x."""
        if not self._keeps_latents(context):
            return super().forward(x, past, context)
        Q, latent, shared = self._compressed(x)
        # Detached: it serves decoding alone, and training would keep it for the backward pass.
        joined = torch.cat([shared, latent.to(shared.dtype)], dim=-1)[:, None].detach()
        new = self._placed(None, joined, context)  # (B, 1, T, shared + rank)
        if past is None:
            out, _ = self._mix(x, self._expanded(Q, latent, shared), None, context)
            return out, Latents(new)
        memory: GrowableTensor = past.append(new)
        keys = memory.tensor.expand(-1, self.h, -1, -1)
        of_keys, of_values = self.W_KV.weight.unflatten(0, (self.h, -1)).split(self.sizes, dim=1)
        placed, own = self._queries(Q, context).split([self.shared, self.sizes[0]], dim=-1)
        Q = torch.cat([placed, own @ of_keys.to(own.dtype)], dim=-1)
        read = KeyValues(keys, keys[..., self.shared :])
        return self._attend(x, Q, read, context, widen=of_values.mT), memory

    def _keeps_latents(self, context: AttentionContext) -> bool:
        """Whether keys and values are linear in the latent vectors when they are attended to."""
        changes_values = len(self.value_parts) > 0 or self.excludes_own_value
        is_changed = self.convolution is not None or self.norm_K is not None or changes_values
        encoding = context.positional_encoding
        # A class of one's own may rotate all of a key.
        adds_nothing = encoding is None or type(encoding).rotate is PositionalEncoding.rotate
        has_place = adds_nothing or type(encoding) is RotaryPositions
        is_biased = encoding is not None and encoding.acts_on_scores
        is_plain = type(self.mechanism) in (FullAttention, LocalAttention)
        return is_plain and has_place and not is_biased and not is_changed

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


class WidthNorm(RMSNorm):
    """RMSNorm over the entries of all heads together: (B, h, T, d) -> the same."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, h, T, d) -> (B, h, T, d)."""
        h = x.shape[1]
        return super().forward(x.transpose(1, 2).flatten(2)).unflatten(2, (h, -1)).transpose(1, 2)


def _projected(x: Tensor, *projections: Linear) -> list[Tensor]:
    """Each projection of x (B, T, d_model): (B, T, heads * d)."""
    return linears(x, [(W.weight, W.bias) for W in projections])


def query_norm(kind: str, heads: int, size: int) -> nn.Module | None:
    """The norm of queries or of keys (B, heads, T, size), by `qk_norm`; None for none."""
    if kind == "head":
        return RMSNorm(size)
    if kind == "width":
        return WidthNorm(heads * size)
    return UnitNorm() if kind == "unit" else None


def _apply(
    mechanism: AttentionMechanism, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext
) -> Tensor:
    """Apply the mechanism in fp32, also in autocast; in bf16 on a GPU where it supports that.

    Attention is a small part of the work, and on a CPU torch's bf16 kernel is many times slower at
    the lengths of sentences (benchmarks/LOG.md, 2026-11-21, how workers are set up).
    """
    if Q.dtype == torch.bfloat16 and not (on_gpu(Q) and mechanism.supports_bf16):
        Q, K, V = Q.float(), K.float(), V.float()
    with torch.autocast(Q.device.type, enabled=False):
        return mechanism(Q, K, V, context)
