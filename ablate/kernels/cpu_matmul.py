"""The three matrix products of a linear layer, by the fastest method for device and precision.

`Matmul` is the reference, with the products of torch, for GPUs and for fp32. The other classes are
for CPUs:

- bf16 operands (`PaddedBF16`, `FusedBF16`): S +14 to +18 % over rounding within the product
  (benchmarks/LOG.md, 2026-11-21, bf16 on a CPU, second round), and another +3.6 % with biases
  inside of the product (2026-11-22, at last).
- bf16 rounded within the product (`RoundedWithin`): for outputs far larger than the operands, such
  as logits, whose conversion would take longer than bf16 saves (same entries).

oneDNN compiles code for each new number of rows, which takes several times as long as the product
itself, and most batches have a new number of rows. Therefore inputs are padded with rows of zeros
to one of a few numbers: XS bf16 +23 %, S bf16 +31 % (2026-11-21, code
compiled for every batch).

M rows of inputs X (M, d_in) meet a weight W (d_out, d_in); G (M, d_out) is the gradient of the
outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.kernels.device import on_gpu
from ablate.kernels.torch_internals import has_bf16_matmul, is_x86, linear_pointwise


class Matmul:
    """The products of torch. Their operands are results of `pack` and `cast`."""

    def pack(self, *blocks: Tensor) -> Tensor:
        """Blocks (M, d_i) side by side as operands (M', sum of d_i); rows from M on are zeros."""
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)

    def cast(self, weight: Tensor) -> Tensor:
        """A weight or a bias as an operand; the same shape."""
        return weight

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b: (M, d_out)."""
        return F.linear(x, weight, bias)

    def linear_relu(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """max(0, X W^T + b): (M, d_out)."""
        # In place: the product is a new tensor that nothing else refers to.
        return F.relu(self.linear(x, weight, bias), inplace=True)

    def grad_input(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W: (M, d_in)."""
        return grad @ weight

    def grad_weight(self, grad: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
        """G^T X: (d_out, d_in); or added to `out` in place, in the precision of `out`."""
        if out is None:
            return grad.T @ x
        # addmm needs operands of equal types. A product in bf16 is added to an fp32 sum in a second
        # step, so that the sum over chunks is never rounded to bf16.
        if out.dtype == grad.dtype:
            return torch.addmm(out, grad.T, x, out=out)
        return out.add_(grad.T @ x)


class BF16(Matmul):
    """Operands in bf16, sums in fp32, results in bf16."""

    def pack(self, *blocks: Tensor) -> Tensor:
        """In bf16, without padding."""
        return _padded(blocks, len(blocks[0]), torch.bfloat16)

    def cast(self, weight: Tensor) -> Tensor:
        """In bf16."""
        return weight.to(torch.bfloat16)


class PaddedBF16(BF16):
    """`BF16` by oneDNN, with the number of rows padded to one of a few numbers."""

    def pack(self, *blocks: Tensor) -> Tensor:
        """In bf16, padded."""
        return _padded(blocks, padded_rows(len(blocks[0])), torch.bfloat16)


class FusedBF16(PaddedBF16):
    """`PaddedBF16` with bias and ReLU inside of the product.

    Only for x86: on ARM oneDNN has no fast kernel for this combination, and its reference
    implementation is a hundred times slower.
    """

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b."""
        return linear_pointwise(x, weight, bias, "none")

    def linear_relu(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """max(0, X W^T + b)."""
        return linear_pointwise(x, weight, bias, "relu")


class RoundedWithin(Matmul):
    """fp32 operands that oneDNN rounds to bf16 while it reads them; results in fp32, never rounded.

    It is half as fast as bf16 operands, but faster where a large output would have to be converted.
    Compilation takes longer and needs megabytes, so there are fewer numbers of rows than in
    `PaddedBF16`.
    """

    def pack(self, *blocks: Tensor) -> Tensor:
        """Padded to a power of two, 64 at least."""
        return _padded(blocks, max(64, 1 << (len(blocks[0]) - 1).bit_length()), blocks[0].dtype)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b."""
        with _rounding_matmul():
            return super().linear(x, weight, bias)

    def grad_input(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W."""
        with _rounding_matmul():
            return super().grad_input(grad, weight)

    def grad_weight(self, grad: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
        """G^T X."""
        with _rounding_matmul():
            return super().grad_weight(grad, x, out)


class EmulatedBF16(BF16):
    """Operands rounded to bf16, products in fp32, for processors without bf16."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """X W^T + b."""
        # The product of two bf16 numbers is exact in fp32.
        return Matmul().linear(x.float(), weight.float(), None if bias is None else bias.float())

    def grad_input(self, grad: Tensor, weight: Tensor) -> Tensor:
        """G W."""
        return Matmul().grad_input(grad.float(), weight.float())

    def grad_weight(self, grad: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
        """G^T X."""
        return Matmul().grad_weight(grad.float(), x.float(), out)


def matmul_for(device: torch.device, bf16: bool, wide: bool = False) -> Matmul:
    """The fastest products for a device.

    Args:
        device: where the operands are.
        bf16: whether operands may be rounded to bf16.
        wide: whether outputs are far larger than operands.
    """
    if not bf16:
        return Matmul()
    if on_gpu(device):
        return BF16()
    if not _has_bf16():
        return EmulatedBF16()
    if wide:
        return RoundedWithin()
    return FusedBF16() if is_x86() else PaddedBF16()


def padded_rows(rows: int) -> int:
    """The smallest of 64, 72, ... 128, 144, ... that is not below `rows`."""
    # Eight numbers between powers of two: above 64 rows, padding is less than an eighth of the
    # rows.
    step = max(8, 1 << max(0, (rows - 1).bit_length() - 4))
    return max(64, -(-rows // step) * step)


def _padded(blocks: Sequence[Tensor], rows: int, dtype: torch.dtype) -> Tensor:
    """Blocks (M, d_i) side by side in a tensor (rows, sum of d_i), with zeros after row M."""
    n = len(blocks[0])
    # Nothing to pad or to concatenate. If no conversion is needed, this is the tensor itself.
    if len(blocks) == 1 and n == rows:
        return blocks[0].to(dtype)
    widths = [block.shape[1] for block in blocks]
    out = blocks[0].new_empty(rows, sum(widths), dtype=dtype)
    for columns, block in zip(out.split(widths, dim=1), blocks, strict=True):
        columns[:n].copy_(block)
    # grad_weight sums over all rows, so a NaN in the uninitialized padding would spread.
    out[n:] = 0
    return out


@contextmanager
def _rounding_matmul() -> Iterator[None]:
    """Let oneDNN round fp32 operands to bf16 in this context, which slows down small products."""
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    previous = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = previous


@cache
def _has_bf16() -> bool:
    return has_bf16_matmul()
