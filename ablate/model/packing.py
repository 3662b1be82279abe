"""Sentences of unequal length, one behind the other, without their padding.

Batches are cut by the length of the target, so a fifth of the places of a source can be padding. What treats each token
alone is spared it; what mixes tokens is given sentences. Both ways are copies of rows: torch's own indexing adds up
gradients where here every row has one (benchmarks/LOG.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Packing:
    """Where the n tokens of B sentences stand, of the S places that each has."""

    def __init__(self, real: Tensor) -> None:
        """Of places (B, S), true at tokens, of which there is one at least."""
        self.size = real.shape
        flat = real.flatten()
        self.places = flat.nonzero()[:, 0]  # (n), of B * S
        self.padding = (~flat).nonzero()[:, 0]
        self.tokens = flat.cumsum(0).sub_(1).clamp_(min=0)  # (B * S), of n; of padding, any

    def pack(self, x: Tensor) -> Tensor:
        """(B, S, ...) -> (1, n, ...): the tokens of all sentences."""
        packed: Tensor = _Pack.apply(x.flatten(0, 1), self)  # type: ignore[no-untyped-call]
        return packed[None]

    def spread(self, x: Tensor) -> Tensor:
        """(1, n, ...) -> (B, S, ...): each sentence by itself, with zeros behind it."""
        if x.shape[:2] != (1, len(self.places)):
            raise RuntimeError(f"tokens of shape {tuple(x.shape)}; expected {(1, len(self.places), *x.shape[2:])}")
        spread: Tensor = _Spread.apply(x[0], self)  # type: ignore[no-untyped-call]
        return spread.unflatten(0, self.size)

    def take(self, x: Tensor) -> Tensor:
        """(B * S, ...) -> (n, ...)."""
        return x.index_select(0, self.places)

    def put(self, x: Tensor) -> Tensor:
        """(n, ...) -> (B * S, ...), with zeros at padding."""
        return x.index_select(0, self.tokens).index_fill_(0, self.padding, 0)


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return packing.take(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.packing.put(grads[0]), None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return packing.put(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.packing.take(grads[0]), None
