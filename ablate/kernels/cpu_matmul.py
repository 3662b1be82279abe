"""The three products of a linear layer, by the way that is fastest for a device and a precision.

On a GPU that is torch's own, in bf16 too. On a CPU products in bf16 are oneDNN's, but where an output is so large
that converting it costs more than they gain. In fp32, torch's own take a slow path of MKL's on AMD processors, and
oneDNN's do not. benchmarks/LOG.md has what each was measured to gain, and what did not gain anything.

oneDNN compiles code for every number of rows that it has not met, which can take several times as long as the product
itself, and hardly two batches have as many rows. Rows of zeros therefore fill them up to one of few numbers, or they go
in parts.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class Products:
    """Torch's own. M rows of inputs (M, d_in) meet a weight (d_out, d_in), both as `rows` and `matrix` give them."""

    def rows(self, *parts: Tensor) -> Tensor:
        """Inputs, or gradients of outputs, side by side as these products take them; rows of zeros may follow."""
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def matrix(self, weight: Tensor) -> Tensor:
        """A weight, or a bias, as these products take it."""
        return weight

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b: (M, d_out)."""
        return F.linear(x, weight, bias)

    def positive_outputs(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """max(0, X W^T + b): (M, d_out)."""
        return F.relu(self.outputs(x, weight, bias), inplace=True)

    def to_inputs(self, grad: Tensor, weight: Tensor) -> Tensor:
        """The gradient G (M, d_out) of outputs -> that of inputs, G W: (M, d_in)."""
        return grad @ weight

    def to_weight(self, grad: Tensor, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """The gradient of the weight, G^T X (d_out, d_in); added to what is there already, in its place."""
        if onto is None:
            return grad.T @ x
        same = onto.dtype == grad.dtype
        return torch.addmm(onto, grad.T, x, out=onto) if same else onto.add_(grad.T @ x)


class Rounded(Products):
    """Of operands rounded to bf16: summed up in fp32, and then rounded again."""

    def rows(self, *parts: Tensor) -> Tensor:
        """In bf16."""
        return _filled(parts, len(parts[0]), torch.bfloat16)

    def matrix(self, weight: Tensor) -> Tensor:
        """In bf16."""
        return weight.to(torch.bfloat16)


class RoundedInSizes(Rounded):
    """The same by oneDNN, with rows of zeros behind the others."""

    def rows(self, *parts: Tensor) -> Tensor:
        """In bf16, filled up."""
        return _filled(parts, size_for(len(parts[0])), torch.bfloat16)


class RoundedAtOnce(RoundedInSizes):
    """The same; biases and ReLU are part of the product.

    On x86 alone: on ARM processors oneDNN is quick at the product by itself, and this one is its reference, a hundred
    times slower.
    """

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b."""
        return _pointwise(x, weight, bias, "none")

    def positive_outputs(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """max(0, X W^T + b)."""
        return _pointwise(x, weight, bias, "relu")


class RoundedWithin(Products):
    """Of fp32 numbers that oneDNN rounds to bf16 as it takes them: what comes out was never rounded.

    Half as fast as products in bf16, and yet faster where the output is large and would have to be converted. The
    code for a number of rows takes longer to compile here, and keeps megabytes: there are fewer numbers.
    """

    def rows(self, *parts: Tensor) -> Tensor:
        """Filled up to a power of two."""
        return _filled(parts, max(64, 1 << (len(parts[0]) - 1).bit_length()), parts[0].dtype)

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b."""
        with _rounding():
            return super().outputs(x, weight, bias)

    def to_inputs(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W."""
        with _rounding():
            return super().to_inputs(grad, weight)

    def to_weight(self, grad: Tensor, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """G^T X."""
        with _rounding():
            return super().to_weight(grad, x, onto)


class RoundedBefore(Rounded):
    """Of operands rounded to bf16, in fp32: for processors that have no products in bf16."""

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b."""
        return _exact_on_cpu().outputs(x.float(), weight.float(), None if bias is None else bias.float())

    def to_inputs(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W."""
        return _exact_on_cpu().to_inputs(grad.float(), weight.float())

    def to_weight(self, grad: Tensor, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """G^T X."""
        return _exact_on_cpu().to_weight(grad.float(), x.float(), onto)


class OneDNN(Products):
    """In fp32 by oneDNN, with rows in parts of few sizes; what is left is filled up to the smallest.

    Code in fp32 keeps tens of megabytes for each number of rows, so these are fewer still than in bf16.
    """

    SIZES = (4096, 2048, 1024, 512, 256, 128, 64)

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b."""
        y = self._by_rows(x, weight)
        return y if bias is None else y.add_(bias)

    def to_inputs(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W."""
        return self._by_rows(grad, weight.T.contiguous())

    def to_weight(self, grad: Tensor, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """G^T X."""
        total = grad.new_zeros(grad.shape[1], x.shape[1]) if onto is None else onto
        for start, stop, size in self._parts(len(x)):
            G, X = (_filled([each[start:stop]], size, each.dtype) for each in (grad, x))
            total += _by_onednn(G.T, X.T)
        return total

    def _by_rows(self, a: Tensor, b: Tensor) -> Tensor:
        out = a.new_empty(len(a), len(b))
        for start, stop, size in self._parts(len(a)):
            out[start:stop] = _by_onednn(_filled([a[start:stop]], size, a.dtype), b)[: stop - start]
        return out

    def _parts(self, rows: int) -> Iterator[tuple[int, int, int]]:
        """(begin, end, the size that it is filled up to) of each part."""
        start = 0
        for size in self.SIZES:
            while rows - start >= size:
                yield start, start + size, size
                start += size
        if start < rows:
            yield start, rows, self.SIZES[-1]


def _by_onednn(a: Tensor, b: Tensor) -> Tensor:
    """A B^T."""
    if a.dtype != torch.float32:
        return a @ b.T
    return _pointwise(a.contiguous(), b.contiguous(), None, "none")


def _pointwise(x: Tensor, weight: Tensor, bias: Tensor | None, then: str) -> Tensor:
    """X W^T + b by oneDNN, and a function of each entry."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, then, [], "")
    return y


def products(device: torch.device, bf16: bool, wide: bool = False) -> Products:
    """The products for a device; `bf16`: whether operands may be rounded; `wide`: whether outputs are far larger."""
    if device.type != "cpu":
        return Rounded() if bf16 else Products()
    if not bf16:
        return _exact_on_cpu()
    if not _has_bf16():
        return RoundedBefore()
    if wide:
        return RoundedWithin()
    return RoundedAtOnce() if _is_x86() else RoundedInSizes()


def size_for(rows: int) -> int:
    """The least of 64, 72, 80, ... 128, 144, ... that is no less: eight from any number to its double."""
    step = max(8, 1 << max(0, (rows - 1).bit_length() - 4))
    return max(64, -(-rows // step) * step)


def _filled(parts: Sequence[Tensor], rows: int, dtype: torch.dtype) -> Tensor:
    """Tensors of n rows side by side, of a type, with rows of zeros behind theirs."""
    n = len(parts[0])
    if len(parts) == 1 and n == rows:
        return parts[0].to(dtype)
    out = parts[0].new_empty(rows, sum(part.shape[1] for part in parts), dtype=dtype)
    for place, part in zip(out.split([part.shape[1] for part in parts], dim=1), parts, strict=True):
        place[:n].copy_(part)
    out[n:] = 0
    return out


@contextmanager
def _rounding() -> Iterator[None]:
    """Products of fp32 tensors on a CPU round their operands to bf16. Slows the small ones inside attention down."""
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


@cache
def _exact_on_cpu() -> Products:
    try:
        amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        amd = False
    return OneDNN() if amd and torch.backends.mkldnn.is_available() else Products()


@cache
def _has_bf16() -> bool:
    """Whether this processor has instructions for products in bf16; without them oneDNN emulates those."""
    if not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    return not _is_x86() or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def _is_x86() -> bool:
    return platform.machine() in ("x86_64", "AMD64")
