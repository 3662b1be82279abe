"""The few layers that everything else is made of.

They are our own, and all in this file, so that what holds for one run could later hold for several
runs of equal shape stacked along a leading axis; no layer keeps or reads global state.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ablate.kernels.linear import linear


class Linear(nn.Module):
    """y = x W^T + b with W of shape (d_out, d_in), Xavier-uniform, and b zero or absent."""

    def __init__(self, d_in: int, d_out: int, init: torch.Generator, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None
        nn.init.xavier_uniform_(self.weight, generator=init)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_in) -> (..., d_out)."""
        return linear(x, self.weight, self.bias)


class Embedding(nn.Module):
    """A V x d_model matrix, times sqrt(d_model) when looked up (3.4).

    Entries are drawn from N(0, 1/d_model), so that a looked-up vector has variance 1 and a logit starts near it.
    """

    def __init__(self, vocab_size: int, d_model: int, init: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.scale = math.sqrt(d_model)
        nn.init.normal_(self.weight, std=d_model**-0.5, generator=init)

    def forward(self, tokens: Tensor) -> Tensor:
        """(...) token ids -> (..., d_model)."""
        return F.embedding(tokens, self.weight) * self.scale


class Dropout(nn.Module):
    """Inverted dropout from a generator of its own, so that a resumed run draws what it would have drawn.

    Masks cost one 64-bit draw for four elements. A rate is met to the nearest 1/65536, and kept
    elements are scaled by the rate that is really applied, so the expectation is exact. The mask is
    made of numbers and not of booleans, which torch multiplies with at a third of the speed on a CPU.
    """

    def __init__(self, rate: float, random: torch.Generator) -> None:
        super().__init__()
        self.rate = rate
        self.random = random

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """Any shape; the identity when evaluating or when the rate is 0. Added to `onto`, where given."""
        if not self.training or self.rate == 0.0:
            return x if onto is None else onto + x
        dropped = min(round(self.rate * 65536), 65535)
        kept = torch.empty_like(x, requires_grad=False)
        torch.ge(self._draws(x), dropped - 32768, out=kept)
        scale = 65536 / (65536 - dropped)  # kept out of the mask, whose type may round it
        if onto is None:
            return (x * kept).mul_(scale)
        y: Tensor = _Onto.apply(onto, x, kept, scale)  # type: ignore[no-untyped-call]
        return y

    def _draws(self, x: Tensor) -> Tensor:
        """Uniform 16-bit integers in x's shape."""
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)
        words.random_(-(2**63), None, generator=self.random)
        return words.view(torch.int16)[: x.numel()].view(x.shape)


class _Onto(torch.autograd.Function):
    """A residual plus x * kept * scale: one step of the graph in the place of three."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, kept: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale = scale
        with torch.autocast(x.device.type, enabled=False):  # which would convert x first, in passes of its own
            return torch.addcmul(residual, x, kept, value=scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        return grads[0], (grads[0] * kept).mul_(ctx.scale).to(kept.dtype), None, None
