"""The short causal convolution of attention and of recurrent mixers, and the shift of RWKV."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.attention_context import AttentionContext
from ablate.model.layers import ParameterKinds, optional, zeros


class ShortConvolution(nn.Module):
    """A causal convolution of each channel over the last `width` tokens."""

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "kernel", "bias": "bias"}

    def __init__(
        self, channels: int, width: int, init: torch.Generator, bias: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, width))
        self.bias = optional(bias, zeros, channels)
        bound = width**-0.5  # torch's own rule for a convolution
        nn.init.uniform_(self.weight, -bound, bound, generator=init)

    def forward(
        self, x: Tensor, past: Tensor | None, tokens: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Convolve x with itself and its past.

        Args:
            x: (B, T, channels).
            past: inputs before x (B, width - 1, channels); None for zeros.
            tokens: (B, T), false at padding, which is at the end; None without padding.

        Returns:
            (B, T, channels), and the last width - 1 inputs that are no padding.
        """
        before = self.weight.shape[-1] - 1
        inputs = _after(past, x, before)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        out = F.conv1d(inputs.mT, self.weight.to(x.dtype), bias, groups=x.shape[2]).mT
        return out, _last(inputs, before, tokens)


class TokenShift(nn.Module):
    """Blends of each token with the one before, by trained shares of each channel."""

    def __init__(self, channels: int, blends: int) -> None:
        super().__init__()
        share = torch.arange(channels) / channels
        self.shares = nn.ParameterList(nn.Parameter(share.clone()) for _ in range(blends))

    def forward(
        self, x: Tensor, past: Tensor | None, tokens: Tensor | None
    ) -> tuple[list[Tensor], Tensor]:
        """The blends of x (B, T, channels), and its last token that is no padding.

        Args:
            x: (B, T, channels).
            past: the token before x (B, 1, channels); None for zeros.
            tokens: (B, T), false at padding, which is at the end; None without padding.
        """
        inputs = _after(past, x, 1)
        before = inputs[:, :-1]
        blends = [before.lerp(x, share.to(x.dtype)) for share in self.shares]
        return blends, _last(inputs, 1, tokens)


def _after(past: Tensor | None, x: Tensor, count: int) -> Tensor:
    """The inputs before x, which are zeros at the beginning of a sequence, then x."""
    if past is None:
        past = x.new_zeros(x.shape[0], count, x.shape[2])
    return torch.cat([past, x], dim=1)


def _last(inputs: Tensor, count: int, tokens: Tensor | None) -> Tensor:
    """The last inputs that are no padding (B, count, channels), of which as many are before x."""
    if tokens is None:
        return inputs[:, inputs.shape[1] - count :]
    last = tokens.sum(1)[:, None] + torch.arange(count, device=inputs.device)  # (B, count)
    return inputs.gather(1, last[:, :, None].expand(-1, -1, inputs.shape[2]))


def tokens_of(x: Tensor, context: AttentionContext) -> Tensor | None:
    """(B, T), true at the tokens of x and false at padding; None where nothing is padded."""
    if context.key_mask is None:
        return None
    return context.key_mask[:, 0, 0, -x.shape[1] :]
