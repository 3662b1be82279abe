"""What a part of a layer costs: trained parameters, multiplications and memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

BYTES = 4  # fp32: weights, gradients and optimizer state, whatever `precision` is


@dataclass(frozen=True)
class Place:
    """Where a part stands, and what passes it.

    causal: whether its stack is causal.
    tokens: that pass it. squares: sum of the squared lengths of their sequences, which is the
        number of attention scores.
    """

    causal: bool = False
    tokens: int = 0
    squares: int = 0


@dataclass(frozen=True)
class Tensors:
    """The tensors of a layer in training.

    causal: whether its stack is causal.
    length: tokens of a sentence, padding included.
    operand: bytes of a number in operands of products.
    on_gpu: whether Q, K and V have the precision of operands, and dropout masks take one byte.
    """

    causal: bool
    length: int
    operand: int
    on_gpu: bool


@dataclass(frozen=True)
class Cost:
    """Costs of a part, which add up over parts and layers.

    matrices: trained numbers in matrices of hidden layers, which Muon trains.
    others: further trained numbers, such as gains, biases, kernels and tables.
    idle: trained numbers that a token does not meet.
    products: multiplications of one forward pass.
    """

    matrices: int = 0
    others: int = 0
    idle: int = 0
    products: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.matrices + other.matrices,
            self.others + other.others,
            self.idle + other.idle,
            self.products + other.products,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(
            self.matrices * times, self.others * times, self.idle * times, self.products * times
        )

    @property
    def parameters(self) -> int:
        """All trained numbers."""
        return self.matrices + self.others


class Projection(NamedTuple):
    """A linear layer: its entries in and out, and whether it has a bias."""

    inputs: int
    outputs: int
    has_bias: bool = False


def projections(layers: Iterable[Projection], tokens: int) -> Cost:
    """The cost of linear layers that so many tokens pass."""
    weights = biases = 0
    for layer in layers:
        weights += layer.inputs * layer.outputs
        biases += layer.has_bias * layer.outputs
    return Cost(matrices=weights, others=biases, products=weights * tokens)


def matrices(weights: int, place: Place) -> Cost:
    """The cost of matrices with so many weights, each of which multiplies every token once."""
    return Cost(matrices=weights, products=weights * place.tokens)
