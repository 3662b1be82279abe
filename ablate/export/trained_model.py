"""The model that is exported: configuration, weights by name, vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ablate.config import ModelConfig
from ablate.data.tokenizer import Tokenizer


class Affine(NamedTuple):
    """A projection y = x W^T + b, with W of shape (d_out, d_in) and b of shape (d_out,)."""

    W: Tensor
    b: Tensor


@dataclass(frozen=True)
class TrainedModel:
    """A trained model. `languages`: of the source and of the target."""

    config: ModelConfig
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    languages: tuple[str, ...]

    def affine(self, name: str) -> Affine:
        """Return a projection; its bias is zeros if it has none."""
        # A bias of zeros changes nothing, and spares every target the case without one.
        W = self.weights[f"{name}.weight"]
        return Affine(W, self.weights.get(f"{name}.bias", torch.zeros(len(W))))

    def attention(self, name: str) -> tuple[Affine, Affine, Affine, Affine]:
        """Return the projections W^Q, W^K, W^V and W^O of an attention layer."""
        Q, K, V, output = (self.affine(f"{name}.W_{letter}") for letter in "QKVO")
        return Q, K, V, output

    def vocabulary(self) -> list[str]:
        """Return every token piece in the order of ids."""
        return self.tokenizer.pieces(list(range(self.tokenizer.vocab_size)))


def even_then_odd(width: int) -> Tensor:
    """Return the even indices below `width`, then the odd ones.

    This order turns interleaved pairs (2i, 2i + 1), as in this project, into two halves (i, i +
    width / 2).
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
