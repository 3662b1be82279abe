"""Multi-head attention (section 3.2.2), with head sizes that are free of d_model / h."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.layers import Linear


@dataclass
class KeysValues:
    """Projected keys (B, h, S, d_k) and values (B, h, S, d_v)."""

    K: Tensor
    V: Tensor

    def select(self, rows: Tensor) -> KeysValues:
        """The keys and values of these rows of the batch, in this order."""
        return KeysValues(self.K.index_select(0, rows), self.V.index_select(0, rows))

    def append(self, later: KeysValues) -> KeysValues:
        """These and later ones, along the sequence."""
        return KeysValues(torch.cat([self.K, later.K], dim=2), torch.cat([self.V, later.V], dim=2))


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O; projections without biases, as the paper has them."""

    def __init__(self, d_model: int, n_heads: int, d_k: int, d_v: int, init: torch.Generator) -> None:
        super().__init__()
        self.h = n_heads
        self.W_Q = Linear(d_model, n_heads * d_k, init, bias=False)
        self.W_K = Linear(d_model, n_heads * d_k, init, bias=False)
        self.W_V = Linear(d_model, n_heads * d_v, init, bias=False)
        self.W_O = Linear(n_heads * d_v, d_model, init, bias=False)

    def keys_values(self, x: Tensor) -> KeysValues:
        """(B, S, d_model) -> keys and values, to attend to once or many times."""
        return KeysValues(self._heads(self.W_K(x)), self._heads(self.W_V(x)))

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Scaled dot-product attention (3.2.1, eq. 1) of each position of x over the memory.

        Args:
            x: (B, T, d_model), what asks.
            memory: what is asked.
            mask: (B, 1, 1, S), true where a key may be attended to; None lets all be.
            causal: position t sees keys 0..t only.

        Returns:
            (B, T, d_model).
        """
        Q = self._heads(self.W_Q(x))  # (B, h, T, d_k)
        heads = _attend(Q, memory.K, memory.V, mask, causal)
        return self.W_O(heads.transpose(1, 2).flatten(2))  # (B, T, h * d_v) -> (B, T, d_model)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.h, -1)).transpose(1, 2)  # (B, T, h * d) -> (B, h, T, d)


def _attend(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V.

    On a CPU in fp32 also where the products around it are in bf16: it is a small part of the work, and torch's
    bf16 kernel is many times slower at sentences' lengths (benchmarks/LOG.md).
    """
    if Q.device.type == "cpu" and Q.dtype == torch.bfloat16:
        Q, K, V = Q.float(), K.float(), V.float()
    with torch.autocast(Q.device.type, enabled=False):
        return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, is_causal=causal)
