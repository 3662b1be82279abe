"""Operators of torch without a public Python name, which only this module calls.

Each function says why there is no public operator. tests/kernels/test_torch_internals.py fails when
torch drops an operator, and when a public operator can replace it.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

import torch
from torch import Tensor


def linear_pointwise(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """X W^T + b by oneDNN with an activation, `none` or `relu`, in the same pass over the output.

    torch.nn.functional.linear has no activation, and for fp32 it always takes MKL.

    Args:
        x: (M, d_in).
        weight: (d_out, d_in).
        bias: (d_out) or None.
        activation: applied to each entry of the output.

    Returns:
        (M, d_out).
    """
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")
    return y


def relu_backward_(grad: Tensor, y: Tensor) -> Tensor:
    """Set `grad` to 0 in place where y = max(0, ...) is 0; both of one shape and in bf16. y must
    not be NaN.

    The public functions for this (`masked_fill_`, `mul_`) need a mask: one more pass and tensor.
    """
    # A bf16 number is above 0 where the integer of the same bits is, and torch compares integers
    # twice as fast, because it converts bf16 to fp32 and back (benchmarks/LOG.md, 2026-11-22, at
    # last).
    words = grad.view(torch.int16)
    torch.ops.aten.threshold_backward.grad_input(words, y.view(torch.int16), 0, grad_input=words)
    return grad


def reshape_unaliased(y: Tensor, leading: torch.Size) -> Tensor:
    """Reshape without aliasing, so that later operations may work in place: (M, d) -> (*leading,
    d).

    Autograd refuses in-place operations on a view that was made without gradients, as in an
    autograd.Function. `y` must not be used afterwards.
    """
    return view_unaliased(y, (*leading, y.shape[-1]))


def view_unaliased(x: Tensor, shape: Sequence[int]) -> Tensor:
    """`x.view(shape)` that autograd and torch's compiler do not take for a view.

    The compiler would otherwise compile a function again when the tensor behind the view has
    another size.
    """
    return torch.ops.aten._unsafe_view(x, tuple(shape))


def has_bf16_matmul() -> bool:
    """Whether this processor has bf16 products, which oneDNN would emulate slowly."""
    if not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    return (
        not is_x86() or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )


def is_x86() -> bool:
    """Whether this processor is of Intel's or AMD's 64-bit architecture."""
    return platform.machine() in ("x86_64", "AMD64")
