"""What is exported: a configuration, its weights by name, its vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ablate.config import ModelConfig
from ablate.data.tokenizer import Tokenizer


class Affine(NamedTuple):
    """y = x W^T + b: W of shape (d_out, d_in), b (d_out)."""

    W: Tensor
    b: Tensor


@dataclass(frozen=True)
class Source:
    """A trained model. languages: of the source and of the target."""

    config: ModelConfig
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    languages: tuple[str, ...]

    def affine(self, name: str) -> Affine:
        """A projection; where it has no bias, zeros."""
        W = self.weights[f"{name}.weight"]
        return Affine(W, self.weights.get(f"{name}.bias", torch.zeros(len(W))))

    def attention(self, name: str) -> tuple[Affine, Affine, Affine, Affine]:
        """The projections of queries, keys and values, and the one after the heads."""
        Q, K, V, after = (self.affine(f"{name}.W_{letter}") for letter in "QKVO")
        return Q, K, V, after

    def vocabulary(self) -> list[str]:
        """Every piece, in the order of the ids."""
        return self.tokenizer.pieces(list(range(self.tokenizer.vocab_size)))


def halves(width: int) -> Tensor:
    """The even places, then the odd ones: where others keep in two halves what we interleave in pairs."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
