"""Linear layers and dropout. Random numbers come only from generators that the caller passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from ablate.kernels.device import on_gpu
from ablate.kernels.dropout_add import fused_dropout_add
from ablate.kernels.linear import linear
from ablate.kernels.torch_internals import view_unaliased

P = ParamSpec("P")
T = TypeVar("T")

# Kinds of parameters, which the optimizer treats differently. Biases and gains may have any shape.
# The fan-in of a matrix grows with the width of the model. The fan-in of a kernel does not, because
# it filters each channel separately.
ParameterKind = Literal["bias", "gain", "matrix", "embedding", "kernel"]
# Type of the attribute `parameter_kinds` of modules: name of a parameter -> its kind
ParameterKinds = Mapping[str, ParameterKind]


def parameter_kind(module: nn.Module, name: str, parameter: nn.Parameter) -> ParameterKind:
    """The kind of a parameter that the class of its module declares.

    Modules of torch and of users need not declare kinds. Without a declaration, a parameter with
    one axis is a gain, and any other a matrix.
    """
    declared: ParameterKinds = getattr(module, "parameter_kinds", {})
    if name in declared:
        return declared[name]
    return "gain" if parameter.dim() < 2 else "matrix"


def optional(wanted: object, make: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T | None:
    """Make an optional part of a model if it is wanted, else return None."""
    return make(*args, **keywords) if wanted else None


def or_identity(wanted: object, make: Callable[[], nn.Module]) -> nn.Module:
    """Make an optional part of a model if it is wanted, else the identity."""
    return make() if wanted else nn.Identity()


def zeros(*size: int) -> nn.Parameter:
    """A parameter whose initial values are zeros."""
    return nn.Parameter(torch.zeros(size))


class Linear(nn.Module):
    """y = x W^T + b. W (d_out, d_in) has Xavier's uniform initialization, b is initially 0."""

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "matrix", "bias": "bias"}

    def __init__(self, d_in: int, d_out: int, init: torch.Generator, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = optional(bias, zeros, d_out)
        nn.init.xavier_uniform_(self.weight, generator=init)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_in) -> (..., d_out)."""
        return linear(x, self.weight, self.bias)


class Dropout(nn.Module):
    """Inverted dropout with a given generator, whose state checkpoints store.

    One 64-bit draw decides about four entries. The rate is rounded to a multiple of 1/65536, and
    kept entries are scaled by the rounded rate, so that the expectation is exact.
    """

    def __init__(self, rate: float, random: torch.Generator) -> None:
        super().__init__()
        self.rate = rate
        self.random = random

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Drop entries of x, of any shape, and add the result to `residual` if there is one.

        In eval mode, or at rate 0, nothing is dropped.
        """
        if not self.is_active:
            return x if residual is None else residual + x
        dropped = self.dropped
        if residual is not None and on_gpu(x):
            with torch.autocast(x.device.type, enabled=False):
                return fused_dropout_add(residual, x, self.draw(x), dropped)
        if residual is not None:
            x = x.to(residual.dtype)
        # A mask of numbers, because on a CPU torch multiplies by booleans at a third of the speed.
        mask = torch.empty_like(x, requires_grad=False)
        torch.ge(self.draw(x), dropped - 32768, out=mask)
        scale = 65536 / (65536 - dropped)  # not part of the mask, whose dtype might round it
        kept = (x * mask).mul_(scale)
        return kept if residual is None else residual + kept

    @property
    def is_active(self) -> bool:
        """Whether entries are dropped: in training mode, at a rate above 0."""
        return self.training and self.rate > 0.0

    @property
    def dropped(self) -> int:
        """The dropout rate in units of 1/65536."""
        return min(round(self.rate * 65536), 65535)

    def draw(self, x: Tensor) -> Tensor:
        """Draw uniform 16-bit integers in the shape of x."""
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)  # rounded up
        draws.random_(-(2**63), None, generator=self.random)
        return view_unaliased(draws.view(torch.int16)[: x.numel()], x.shape)
