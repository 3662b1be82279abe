"""The elementary layers: linear, embedding, dropout. None of them keeps or reads global state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.kernels.device import on_gpu
from ablate.kernels.dropout_add import dropout_add, fused_dropout_add
from ablate.kernels.linear import linear
from ablate.kernels.torch_internals import view_unaliased

P = ParamSpec("P")
T = TypeVar("T")

# What a parameter is to the optimizer. Biases and gains are vectors, of any shape. The fan-in of a
# matrix grows with the width, and that of a kernel, a filter of each channel, does not.
ParameterKind = Literal["bias", "gain", "matrix", "embedding", "kernel"]
# Of each parameter of a module by name: the attribute `parameter_kinds` of its class.
ParameterKinds = Mapping[str, ParameterKind]


def kind_of(module: nn.Module, name: str, parameter: nn.Parameter) -> ParameterKind:
    """What a parameter of a module is, as its class declares. A module of torch or of the user
    may declare nothing: parameters with one axis are then vectors, and all others matrices.
    """
    declared: ParameterKinds = getattr(module, "parameter_kinds", {})
    if name in declared:
        return declared[name]
    return "gain" if parameter.dim() < 2 else "matrix"


def optional(wanted: object, make: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T | None:
    """A part that a model has only where it is wanted; else None."""
    return make(*args, **keywords) if wanted else None


def or_identity(wanted: object, make: Callable[[], nn.Module]) -> nn.Module:
    """A part that a model has only where it is wanted; else the identity."""
    return make() if wanted else nn.Identity()


def zeros(*size: int) -> nn.Parameter:
    """Numbers to train that begin at 0."""
    return nn.Parameter(torch.zeros(size))


class Linear(nn.Module):
    """y = x W^T + b with W of shape (d_out, d_in), Xavier-uniform, and b zero or absent."""

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "matrix", "bias": "bias"}

    def __init__(self, d_in: int, d_out: int, init: torch.Generator, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = optional(bias, zeros, d_out)
        nn.init.xavier_uniform_(self.weight, generator=init)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_in) -> (..., d_out)."""
        return linear(x, self.weight, self.bias)


class Embedding(nn.Module):
    """A V x d_model matrix, times a scale when looked up, by default sqrt(d_model) (3.4).

    Entries are drawn from N(0, 1/d_model), so that a looked-up vector has variance 1 and a logit
    starts near it.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "embedding"}

    def __init__(
        self, vocab_size: int, d_model: int, init: torch.Generator, scale: float | None = None
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.scale = math.sqrt(d_model) if scale is None else scale
        nn.init.normal_(self.weight, std=d_model**-0.5, generator=init)

    def forward(self, tokens: Tensor) -> Tensor:
        """(...) token ids -> (..., d_model)."""
        vectors = F.embedding(tokens, self.weight)
        return vectors if self.scale == 1.0 else vectors * self.scale


class Dropout(nn.Module):
    """Inverted dropout with its own generator, whose state a checkpoint holds, so that a resumed
    run draws the same.

    A mask costs one 64-bit draw for four entries. The rate is met to the nearest 1/65536, and kept
    entries are scaled by the rate that is really applied, so the expectation is exact.
    """

    def __init__(self, rate: float, random: torch.Generator) -> None:
        super().__init__()
        self.rate = rate
        self.random = random

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Drop entries of x, of any shape, and add the result to `residual`, of the same shape,
        where that is passed.

        The identity when evaluating or when the rate is 0.
        """
        if not self.is_active:
            return x if residual is None else residual + x
        dropped = self.dropped
        if residual is not None and on_gpu(x):
            with torch.autocast(x.device.type, enabled=False):
                return fused_dropout_add(residual, x, self.draw(x), dropped)
        # Numbers and not booleans, which torch multiplies with at a third of the speed on a CPU.
        mask = torch.empty_like(x, requires_grad=False)
        torch.ge(self.draw(x), dropped - 32768, out=mask)
        scale = 65536 / (65536 - dropped)  # not part of the mask, whose type may round it
        return (x * mask).mul_(scale) if residual is None else dropout_add(residual, x, mask, scale)

    @property
    def is_active(self) -> bool:
        """Whether entries are dropped now."""
        return self.training and self.rate > 0.0

    @property
    def dropped(self) -> int:
        """Number of the 65536 16-bit words that drop an entry."""
        return min(round(self.rate * 65536), 65535)

    def draw(self, x: Tensor) -> Tensor:
        """Draw uniform 16-bit integers in the shape of x."""
        # Rounded up: the last draw may have up to three words too many.
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)
        draws.random_(-(2**63), None, generator=self.random)
        return view_unaliased(draws.view(torch.int16)[: x.numel()], x.shape)
