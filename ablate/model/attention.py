"""Attention mechanisms: the computation of the heads (section 3.2.1 of the paper). multi_head.py
has the projections.

A mechanism maps Q (B, h, T, d_k), K (B, h, S, d_k) and V (B, h, S, d_v) to heads (B, h, T, d_v). To
add a mechanism, write a class here and name it in ablate/parts/attention.py.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.model.attention_context import AttentionContext
from ablate.model.layers import ParameterKinds
from ablate.model.norms import UnitNorm
from ablate.parts.attention import LINEAR_CHUNK

# Avoids a division by 0 where all weights of linear attention are 0; as in the authors' code.
LINEAR_EPS = 1e-6


class AttentionMechanism(nn.Module):
    """Base of all mechanisms.

    Attributes:
        forms_scores: whether it computes a score for each pair of tokens and passes the scores to
            `context.weights`, which applies cap, mask, sinks, softmax and dropout. For a built-in
            mechanism, it equals `forms_scores` in ablate/parts/attention.py.
        supports_bias: whether it adds `context.bias` to the scores and `context.values` to the
            heads. A mechanism without this support cannot be combined with a positional encoding
            that defines `bias` or `values`.
        supports_bf16: whether Q, K and V may be in bf16 on a GPU; otherwise they are converted to
            fp32.
        supports_query_masks: whether it applies masks that differ between queries. If so, beam
            search decodes the hypotheses of a sentence as queries over one cache; otherwise each
            hypothesis is a row of the batch.
    """

    forms_scores = True
    supports_bias = False
    supports_bf16 = False
    supports_query_masks = False

    def __init__(self, config: ModelConfig) -> None:
        """Make a mechanism; subclasses read the configuration of the layer."""
        super().__init__()

    def reset_parameters(self, init: torch.Generator) -> None:
        """Draw initial weights. The default does nothing, for mechanisms without weights."""

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext) -> Tensor:
        """Q (B, h, T, d_k), K (B, h, S, d_k), V (B, h, S, d_v) -> heads (B, h, T, d_v)."""
        raise NotImplementedError("define forward(self, Q, K, V, context)")

    def in_output_order(self, heads: Tensor) -> Tensor:
        """Reorder the heads (B, h, ...) of the values as `forward` orders the heads that it
        returns. The default is the same order.
        """
        return heads


class FullAttention(AttentionMechanism):
    """Scaled dot-product attention (3.2.1, eq. 1): softmax(scale * Q K^T) V over unmasked keys."""

    supports_bias = True
    supports_bf16 = True
    supports_query_masks = True
    window: int | None = None

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v)."""
        if context.is_plain:
            # With `is_causal`, padding needs no mask, because it comes after every token. But torch
            # aligns the first query with the first key, which is wrong in decoding, where there are
            # fewer queries than keys.
            is_causal = (
                context.causal
                and self.window is None
                and context.query_mask is None
                and Q.shape[2] == K.shape[2]
            )
            mask = None if is_causal else context.mask(self.window)
            return F.scaled_dot_product_attention(
                Q, K, V, attn_mask=mask, is_causal=is_causal, scale=context.scale
            )
        Q = Q * context.scale
        # Scores are computed in fp32 or more, like the tensors of the positional encoding.
        dtype = V.dtype
        precise = torch.promote_types(dtype, torch.float32)
        Q, K, V = Q.to(precise), K.to(precise), V.to(precise)
        scores = Q @ K.transpose(-1, -2)  # (B, h, T, S)
        bias = context.bias(Q)
        weights = context.weights(scores if bias is None else scores + bias, self.window)
        heads = weights @ V  # (B, h, T, d_v)
        position_values = context.values(weights)
        if position_values is not None:
            heads = heads + position_values
        return heads.to(dtype)


class LocalAttention(FullAttention):
    """Scaled dot-product attention over keys at a distance of at most `attention_window` tokens."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.window = config.attention_window


class DifferentialAttention(FullAttention):
    """Differential attention (Ye et al., 2024, eq. 1 to 3).

    Heads form pairs: head i and head i + h / 2. The difference of their attention weights is
    applied to the values of both, and the result is normalized.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"lambdas": "gain"}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        # The vectors lambda_q1, lambda_k1, lambda_q2 and lambda_k2, concatenated.
        self.lambdas = nn.Parameter(torch.zeros(4 * config.d_k))
        self.norm = UnitNorm()

    def reset_parameters(self, init: torch.Generator) -> None:
        """Draw lambdas from N(0, 0.1^2), as in the paper."""
        nn.init.normal_(self.lambdas, std=0.1, generator=init)

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v)."""
        pair_values = torch.cat(V.chunk(2, dim=1), dim=-1).repeat(1, 2, 1, 1)  # (B, h, S, 2 d_v)
        first, second = super().forward(Q, K, pair_values, context).chunk(2, dim=1)
        q_1, k_1, q_2, k_2 = self.lambdas.view(4, -1)
        # The exponent of the paper is -0.3 (l - 1) with l from 1; `layer` counts from 0.
        lambda_init = 0.8 - 0.6 * math.exp(-0.3 * context.layer)
        lambda_ = (q_1 @ k_1).exp() - (q_2 @ k_2).exp() + lambda_init
        pairs = (1 - lambda_init) * self.norm(first - lambda_ * second)  # (B, h / 2, T, 2 d_v)
        # Split each pair into its two heads: (B, h, T, d_v).
        return pairs.unflatten(3, (2, -1)).transpose(2, 3).flatten(1, 2).to(V.dtype)

    def in_output_order(self, heads: Tensor) -> Tensor:
        """(B, h, ...): the heads of each pair side by side."""
        return torch.stack(heads.chunk(2, dim=1), dim=2).flatten(1, 2)


class LinearAttention(AttentionMechanism):
    """Linear attention (Katharopoulos et al., 2020).

    The weight of a key is phi(q) . phi(k) divided by the sum over keys, with phi(x) = elu(x) + 1.
    Computed as phi(Q) (phi(K)^T V), its cost is linear in the length.
    """

    forms_scores = False

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext) -> Tensor:
        """(B, h, T, d_v)."""
        Q = F.elu(Q) + 1
        K = F.elu(K) + 1
        decoding = context.causal and Q.shape[2] != K.shape[2]
        if context.on_weights is not None or decoding:
            return self._explicit(Q, K, V, context)
        if context.key_mask is not None:
            K = K * context.key_mask.transpose(-1, -2)  # padding has weight 0
        # A last column of ones, so that the products also give the sums of the weights.
        V = torch.cat([V, torch.ones_like(V[..., :1])], dim=-1)  # (B, h, S, d_v + 1)
        # (B, h, T, d_v + 1)
        sums = _causal_sums(Q, K, V) if context.causal else Q @ (K.transpose(-1, -2) @ V)
        return sums[..., :-1] / (sums[..., -1:] + LINEAR_EPS)

    def _explicit(self, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext) -> Tensor:
        """Compute the same heads from explicit weights (B, h, T, S), for analysis and decoding."""
        weights = Q @ K.transpose(-1, -2)
        mask = context.mask()
        if mask is not None:
            weights = weights * mask
        weights = weights / (weights.sum(-1, keepdim=True) + LINEAR_EPS)
        # For `on_weights`: linear attention has no dropout of its weights.
        return context.drop(weights) @ V


def _causal_sums(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """For each query t, the sum over s <= t of (Q_t . K_s) V_s: (B, h, T, d_v).

    It is computed in chunks, because prefix sums of K^T V for all tokens would take T x d_k x d_v
    numbers a head.
    """
    # K^T V of earlier chunks: (B, h, d_k, d_v).
    prefix = torch.zeros(*K.shape[:2], K.shape[-1], V.shape[-1], dtype=K.dtype, device=K.device)
    out = []
    chunks = (x.split(LINEAR_CHUNK, 2) for x in (Q, K, V))
    for q, k, v in zip(*chunks, strict=True):
        out.append((q @ k.transpose(-1, -2)).tril() @ v + q @ prefix)
        prefix = prefix + k.transpose(-1, -2) @ v
    return torch.cat(out, dim=2)
