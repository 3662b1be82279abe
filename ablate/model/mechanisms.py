"""Ways for queries to attend to keys and values: all of them, those near by, or through a kernel.

A mechanism maps Q (B, h, T, d_k), K (B, h, S, d_k) and V (B, h, S, d_v) to heads (B, h, T, d_v). A new
one is a class here and an entry in MECHANISMS.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.config.model import LINEAR_CHUNK
from ablate.model.attention_context import AttentionContext

EPS = 1e-6  # added to sums of linear weights, which may all be 0, as its authors do


class Mechanism(nn.Module):
    """How queries attend.

    takes_bias: whether it adds what a positional encoding has to say on scores.
    takes_bf16: whether it wants Q, K and V as products in bf16 give them on a GPU; else they are in fp32.
    takes_seen: whether queries of one sentence may differ in what they see, as `sight.allowed` says; else hypotheses
        are decoded each with keys and values of its own.
    """

    takes_bias = False
    takes_bf16 = False
    takes_seen = False

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, sight: AttentionContext) -> Tensor:
        """Q (B, h, T, d_k), K (B, h, S, d_k), V (B, h, S, d_v) -> heads (B, h, T, d_v)."""
        raise NotImplementedError("define forward(self, Q, K, V, sight)")


class Full(Mechanism):
    """Scaled dot-product attention (3.2.1, eq. 1): softmax(scale * Q K^T) V over every key that may be seen."""

    takes_bias = True
    takes_bf16 = True
    takes_seen = True
    window: int | None = None

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, sight: AttentionContext) -> Tensor:
        """(B, h, T, d_v)."""
        if sight.is_plain:
            # Then padding is behind every token. torch takes the first query to be at the first key.
            causal = sight.causal and self.window is None and Q.shape[2] == K.shape[2]
            mask = None if causal else sight.allowed(self.window)
            return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, is_causal=causal, scale=sight.scale)
        given = V.dtype
        Q, K, V = (x.to(torch.promote_types(given, torch.float32)) for x in (Q * sight.scale, K, V))  # as positions are
        scores, bias = Q @ K.transpose(-1, -2), sight.bias(Q)  # (B, h, T, S)
        weights = sight.weights(scores if bias is None else scores + bias, self.window)
        heads, of_order = weights @ V, sight.values(weights)
        return (heads if of_order is None else heads + of_order).to(given)


class Local(Full):
    """Scaled dot-product attention over the tokens at most `attention_window` places away."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.window = config.attention_window


class Linear(Mechanism):
    """phi(Q) (phi(K)^T V) over its sum, with phi(x) = elu(x) + 1: linear in length (Katharopoulos et al., 2020)."""

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, sight: AttentionContext) -> Tensor:
        """(B, h, T, d_v)."""
        Q, K = F.elu(Q) + 1, F.elu(K) + 1
        if sight.watch is not None or (sight.causal and Q.shape[2] != K.shape[2]):  # a past is behind the queries
            return self._quadratic(Q, K, V, sight)
        if sight.real is not None:
            K = K * sight.real.transpose(-1, -2)  # what is padding weighs nothing
        V = torch.cat([V, torch.ones_like(V[..., :1])], dim=-1)  # (B, h, S, d_v + 1): the last is the sum of weights
        sums = _causal_sums(Q, K, V) if sight.causal else Q @ (K.transpose(-1, -2) @ V)
        return sums[..., :-1] / (sums[..., -1:] + EPS)

    def _quadratic(self, Q: Tensor, K: Tensor, V: Tensor, sight: AttentionContext) -> Tensor:
        """The same by way of the weights, which are otherwise never formed."""
        weights, allowed = Q @ K.transpose(-1, -2), sight.allowed()
        weights = weights if allowed is None else weights * allowed
        return sight.shown(weights / (weights.sum(-1, keepdim=True) + EPS)) @ V


def _causal_sums(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Sum over s <= t of (Q_t . K_s) V_s: chunk by chunk, those before through their sum K^T V."""
    before = torch.zeros(*K.shape[:2], K.shape[-1], V.shape[-1], dtype=K.dtype, device=K.device)
    out = []
    for q, k, v in zip(Q.split(LINEAR_CHUNK, 2), K.split(LINEAR_CHUNK, 2), V.split(LINEAR_CHUNK, 2), strict=True):
        out.append((q @ k.transpose(-1, -2)).tril() @ v + q @ before)
        before = before + k.transpose(-1, -2) @ v
    return torch.cat(out, dim=2)


MECHANISMS: dict[str, Callable[[ModelConfig], Mechanism]] = {"full": Full, "local": Local, "linear": Linear}
