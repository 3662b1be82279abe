"""Attention (section 3.2.1): what its heads compute. Multi-head attention around it is in
multi_head.py.

A mechanism maps Q (B, h, T, d_k), K (B, h, S, d_k) and V (B, h, S, d_v) to heads (B, h, T, d_v). To
add one, write a class here and name it in ablate/parts/attention.py.
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
        dtype = V.dtype
        precise = torch.promote_types(V.dtype, torch.float32)
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
        Q = F.elu(Q) + 1
        K = F.elu(K) + 1
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
        weights = Q @ K.transpose(-1, -2)
        mask = context.mask()
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
