"""Dropout with the residual sum that follows it, also with layer normalization, on a GPU.

`fused_dropout_add` and `fused_dropout_add_norm` are one kernel forward and one backward: 28 bytes
    of
memory traffic for each entry, counted from the operators. Torch without compilation makes a pass
over memory for each operation, 86 bytes in total. The compiled functions have not run on a GPU yet;
their references are the functions without compilation. Random words are arguments, so that both
have the same mask.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.kernels.device import fused_on_gpu


def dropout_add_words(residual: Tensor, x: Tensor, words: Tensor, dropped: int) -> Tensor:
    """Residual + Dropout(x), in the type of the residual.

    Args:
        residual: any shape.
        x: the same shape, of any type.
        words: the same shape; random 16-bit integers.
        dropped: number of the 65536 words that drop an entry.

    Returns:
        The same shape.
    """
    # Words are signed: -32768 to 32767. An entry is dropped with probability dropped / 65536, and
    # the scale is by the same fraction, so that the expectation is exact.
    mask = words >= dropped - 32768
    return residual + torch.where(mask, x.to(residual.dtype), 0.0) * (65536 / (65536 - dropped))


def dropout_add_norm(
    residual: Tensor,
    x: Tensor,
    words: Tensor,
    dropped: int,
    weight: Tensor,
    bias: Tensor,
    eps: float,
) -> Tensor:
    """LayerNorm(residual + Dropout(x)) over the last axis; other arguments as for
    `dropout_add_words`.

    Args:
        residual: (..., d_model).
        x: (..., d_model).
        words: (..., d_model).
        dropped: number of the 65536 words that drop an entry.
        weight: gain (d_model).
        bias: (d_model).
        eps: added to the variance.

    Returns:
        (..., d_model).
    """
    return F.layer_norm(
        dropout_add_words(residual, x, words, dropped), weight.shape, weight, bias, eps
    )


fused_dropout_add = fused_on_gpu(dropout_add_words)
fused_dropout_add_norm = fused_on_gpu(dropout_add_norm)
