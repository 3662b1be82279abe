"""States of incremental decoding: the base class of all states, and keys and values that grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

MIN_CAPACITY = 16  # positions


@dataclass(frozen=True)
class BatchState:
    """Base of the states of a batch, of which rows can be selected.

    A field is a tensor whose first axis is the batch, another state, or a list or tuple of tensors
    and states. A number or None belongs to all rows.
    """

    def select(self, rows: Tensor) -> Self:
        """Rows (B') of the batch, in this order."""
        return type(self)(*[_selected(value, rows) for value in vars(self).values()])


def _selected(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.index_select(0, rows)
    if isinstance(value, (list, tuple)):
        return type(value)(_selected(item, rows) for item in value)
    return value.select(rows) if isinstance(value, BatchState) else value


@dataclass(frozen=True)
class GrowableTensor(BatchState):
    """A tensor (B, g, S, d) that grows along S, in a buffer with free capacity.

    Attributes:
        buffer: (B, capacity, g, d), of which `length` positions are in use. `append` writes to the
            same buffer, so it may be called only once on an object. Selected rows keep the
            capacity, so that the next step need not copy again.
        length: S.
    """

    buffer: Tensor
    length: int

    @classmethod
    def start(cls, x: Tensor) -> GrowableTensor:
        """A growable copy of x (B, g, S, d)."""
        B, g, S, d = x.shape
        return cls(x.new_empty(B, _capacity(S + 1), g, d), 0).append(x)

    @property
    def tensor(self) -> Tensor:
        """(B, g, S, d), a view of the buffer."""
        return self.buffer[:, : self.length].transpose(1, 2)

    def append(self, later: Tensor) -> GrowableTensor:
        """Append (B, g, n, d) in place and without gradients -> (B, g, S + n, d)."""
        B, capacity, g, d = self.buffer.shape
        length = self.length + later.shape[2]
        buffer = self.buffer
        if length > capacity:
            buffer = buffer.new_empty(B, _capacity(length), g, d)
            buffer[:, : self.length] = self.buffer[:, : self.length]
        buffer[:, self.length : length] = later.transpose(1, 2)
        return GrowableTensor(buffer, length)


def _capacity(positions: int) -> int:
    """The smallest power of two for this number of positions.

    Doubling keeps the cost of all copies proportional to the final length.
    """
    return max(MIN_CAPACITY, 1 << (positions - 1).bit_length())


@dataclass(frozen=True)
class KeyValues(BatchState):
    """Projected keys (B, g, S, d_k) and values (B, g, S, d_v) of g heads."""

    K: Tensor
    V: Tensor

    def append(self, later: KeyValues) -> GrowingKeyValues:
        """Append later keys and values along S."""
        return GrowingKeyValues(GrowableTensor.start(self.K), GrowableTensor.start(self.V)).append(
            later
        )


@dataclass(frozen=True)
class Latents(BatchState):
    """Latent vectors (B, 1, S, d), from which the keys and values of all heads are projected."""

    vectors: Tensor

    def append(self, later: Tensor) -> GrowableTensor:
        """Append later vectors along S."""
        return GrowableTensor.start(self.vectors).append(later)


@dataclass(frozen=True)
class GrowingKeyValues(BatchState):
    """Keys and values that grow by one position in each decoding step."""

    keys: GrowableTensor
    values: GrowableTensor

    @property
    def K(self) -> Tensor:
        """(B, g, S, d_k)."""
        return self.keys.tensor

    @property
    def V(self) -> Tensor:
        """(B, g, S, d_v)."""
        return self.values.tensor

    def append(self, later: KeyValues) -> GrowingKeyValues:
        """Append later keys and values along S."""
        return GrowingKeyValues(self.keys.append(later.K), self.values.append(later.V))
