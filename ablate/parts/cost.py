"""Cost of a part of a layer: trained parameters, multiplications and memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

BYTES = 4  # fp32: weights, gradients and optimizer state, whatever `precision` is


@dataclass(frozen=True)
class Workload:
    """The tokens that a layer processes in one forward pass.

    causal: whether the stack of the layer is causal.
    tokens: number of tokens.
    scores: number of attention scores of a head: sum of the squared lengths of the sequences.
    """

    causal: bool = False
    tokens: int = 0
    scores: int = 0


@dataclass(frozen=True)
class Tensors:
    """Properties of the tensors that a layer keeps for the backward pass.

    causal: whether the stack of the layer is causal.
    length: number of tokens of a sentence, padding included.
    operand_bytes: bytes of a number in the operands of matrix products.
    on_gpu: whether the layer runs on a GPU, where Q, K and V have the precision of operands, and a
        dropout mask takes one byte a number.
    """

    causal: bool
    length: int
    operand_bytes: int
    on_gpu: bool


@dataclass(frozen=True)
class Cost:
    """Cost of a part, which adds up over parts and layers.

    matrix_parameters: trained numbers in matrices of hidden layers, which Muon updates.
    other_parameters: all other trained numbers, such as gains, biases, kernels and tables.
    idle_parameters: trained numbers that a token does not use, such as the experts that it is not
        sent to; they are also counted above.
    multiplications: number of multiplications in one forward pass.
    """

    matrix_parameters: int = 0
    other_parameters: int = 0
    idle_parameters: int = 0
    multiplications: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.matrix_parameters + other.matrix_parameters,
            self.other_parameters + other.other_parameters,
            self.idle_parameters + other.idle_parameters,
            self.multiplications + other.multiplications,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(
            self.matrix_parameters * times,
            self.other_parameters * times,
            self.idle_parameters * times,
            self.multiplications * times,
        )

    @property
    def parameters(self) -> int:
        """Number of all trained numbers."""
        return self.matrix_parameters + self.other_parameters


class Projection(NamedTuple):
    """Sizes of a linear layer: entries in, entries out, and whether it has a bias."""

    inputs: int
    outputs: int
    has_bias: bool = False


def linear_cost(layers: Iterable[Projection], tokens: int) -> Cost:
    """Cost of linear layers that are applied to this number of tokens."""
    weights = biases = 0
    for layer in layers:
        weights += layer.inputs * layer.outputs
        if layer.has_bias:
            biases += layer.outputs
    return Cost(weights, biases, multiplications=weights * tokens)


def matrix_cost(weights: int, work: Workload) -> Cost:
    """Cost of matrices with this number of weights, each of which multiplies every token once."""
    return Cost(weights, multiplications=weights * work.tokens)
