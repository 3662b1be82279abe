"""What tells the model the order of tokens (section 3.5; row E of Table 3).

A positional encoding is a module that maps embedded tokens and the position of the first of them to
embedded tokens of the same shape. A new one is a class here and an entry in POSITIONS.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class Sinusoidal(nn.Module):
    """Sines and cosines of geometrically spaced wavelengths from 2 pi to 10000 * 2 pi, interleaved (3.5)."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(max_positions, d_model), persistent=False)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model); the first token stands at position `offset`."""
        table: Tensor = self.table  # type: ignore[assignment]
        return x + table[offset : offset + x.shape[1]]


class Learned(nn.Module):
    """A vector a position, learned with everything else; source and target have a table each (row E)."""

    def __init__(self, d_model: int, max_positions: int, init: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5, generator=init)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model); the first token stands at position `offset`."""
        return x + self.weight[offset : offset + x.shape[1]]


class NoPosition(nn.Module):
    """Tokens without their places: the encoder sees a bag of words."""

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """(B, T, d_model), unchanged."""
        return x


def sinusoids(positions: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same; (positions, d_model)."""
    pos = torch.arange(positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = pos * torch.exp(even * (-math.log(10_000.0) / d_model))  # (positions, d_model / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()  # (positions, d_model)


POSITIONS: dict[str, Callable[[int, int, torch.Generator], nn.Module]] = {
    "sinusoidal": lambda d_model, positions, init: Sinusoidal(d_model, positions),
    "learned": Learned,
    "none": lambda d_model, positions, init: NoPosition(),
}
