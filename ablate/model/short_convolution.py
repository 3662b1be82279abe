"""The short causal convolution of attention and of recurrent mixers, and RWKV's token shift."""

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
        bound = width**-0.5  # as in torch.nn.Conv1d
        nn.init.uniform_(self.weight, -bound, bound, generator=init)

    def forward(
        self, x: Tensor, past: Tensor | None, tokens: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Convolve each token of x with the tokens before it.

        Args:
            x: (B, T, channels).
            past: the last inputs before x (B, width - 1, channels); None for zeros.
            tokens: (B, T), false at padding, which is at the end; None without padding.

        Returns:
            (B, T, channels), and the last width - 1 inputs without padding.
        """
        count = self.weight.shape[-1] - 1
        inputs = _prepend(past, x, count)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        out = F.conv1d(inputs.mT, self.weight.to(x.dtype), bias, groups=x.shape[2]).mT
        return out, _last(inputs, count, tokens)


class TokenShift(nn.Module):
    """Blends each token with the previous one, by trained shares of each channel."""

    def __init__(self, channels: int, blends: int) -> None:
        super().__init__()
        share = torch.arange(channels) / channels
        self.shares = nn.ParameterList(nn.Parameter(share.clone()) for _ in range(blends))

    def forward(
        self, x: Tensor, past: Tensor | None, tokens: Tensor | None
    ) -> tuple[list[Tensor], Tensor]:
        """Blend each token with the previous one.

        Args:
            x: (B, T, channels).
            past: the token before x (B, 1, channels); None for zeros.
            tokens: (B, T), false at padding, which is at the end; None without padding.

        Returns:
            The blends, each (B, T, channels), and the last token before the padding.
        """
        inputs = _prepend(past, x, 1)
        previous = inputs[:, :-1]
        blends = [previous.lerp(x, share.to(x.dtype)) for share in self.shares]
        return blends, _last(inputs, 1, tokens)


def _prepend(past: Tensor | None, x: Tensor, count: int) -> Tensor:
    """The inputs before x, or `count` zeros, followed by x."""
    if past is None:
        past = x.new_zeros(x.shape[0], count, x.shape[2])
    return torch.cat([past, x], dim=1)


def _last(inputs: Tensor, count: int, tokens: Tensor | None) -> Tensor:
    """The last `count` inputs before padding: (B, count + T, channels) -> (B, count, channels)."""
    if tokens is None:
        return inputs[:, inputs.shape[1] - count :]
    indices = tokens.sum(1)[:, None] + torch.arange(count, device=inputs.device)  # (B, count)
    return inputs.gather(1, indices[:, :, None].expand(-1, -1, inputs.shape[2]))


def token_mask(x: Tensor, context: AttentionContext) -> Tensor | None:
    """(B, T), true at the tokens of x and false at padding; None without padding."""
    if context.key_mask is None:
        return None
    return context.key_mask[:, 0, 0, -x.shape[1] :]
