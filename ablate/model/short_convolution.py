"""The short causal convolution of attention and of recurrent mixers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.attention_context import AttentionContext


class ShortConvolution(nn.Module):
    """A causal convolution of each channel over the last `width` tokens."""

    def __init__(
        self, channels: int, width: int, init: torch.Generator, bias: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, width))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
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
        past = x.new_zeros(x.shape[0], before, x.shape[2]) if past is None else past
        inputs = torch.cat([past, x], dim=1)
        bias = None if self.bias is None else self.bias.to(x.dtype)
        out = F.conv1d(inputs.mT, self.weight.to(x.dtype), bias, groups=x.shape[2]).mT
        if tokens is None:
            return out, inputs[:, inputs.shape[1] - before :]
        last = tokens.sum(1)[:, None] + torch.arange(before, device=x.device)  # (B, width - 1)
        return out, inputs.gather(1, last[:, :, None].expand(-1, -1, x.shape[2]))


def tokens_of(x: Tensor, context: AttentionContext) -> Tensor | None:
    """(B, T), true at the tokens of x and false at padding; None where nothing is padded."""
    if context.key_mask is None:
        return None
    return context.key_mask[:, 0, 0, -x.shape[1] :]
