"""A comparison with an oracle: the compared numbers, and their largest difference."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

LIMIT = 1e-4

Pairs = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Comparison:
    """Root mean square of the oracle's numbers, and our largest difference from them."""

    rms: float
    difference: float


@dataclass(frozen=True)
class Row:
    """One comparison. `pairs`: our tensors and the oracle's, of equal shapes."""

    oracle: str
    what: str
    pairs: Callable[[], Pairs]

    def __str__(self) -> str:
        return f"{self.oracle}: {self.what}"

    @torch.no_grad()
    def compare(self) -> Comparison:
        numbers, squares, difference = 0, 0.0, 0.0
        for ours, theirs in self.pairs():
            assert ours.shape == theirs.shape
            apart = float((ours.double() - theirs.double()).abs().max())
            difference = max(difference, math.inf if math.isnan(apart) else apart)
            numbers += theirs.numel()
            squares += float(theirs.double().square().sum())
        return Comparison(math.sqrt(squares / numbers), difference)
