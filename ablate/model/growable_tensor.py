"""What attention keeps of a sentence while it is decoded, position by position."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

LEAST_ROOM = 16  # positions


@dataclass(frozen=True)
class GrowableTensor:
    """A tensor (B, g, S, d) that grows along S, in memory for more than there is yet.

    memory: (B, room, g, d), the first `length` along room filled. A series shares it with those that have grown from
        it; it can therefore grow once.
    """

    memory: Tensor
    length: int

    @classmethod
    def of(cls, x: Tensor) -> GrowableTensor:
        """The series that begins with x (B, g, S, d)."""
        B, g, S, d = x.shape
        return cls(x.new_empty(B, _room(S + 1), g, d), 0).append(x)

    @property
    def tensor(self) -> Tensor:
        """(B, g, S, d), a view."""
        return self.memory[:, : self.length].transpose(1, 2)

    def append(self, later: Tensor) -> GrowableTensor:
        """This and a later part (B, g, n, d), written into this one's memory: without gradients, and once."""
        B, room, g, d = self.memory.shape
        length, memory = self.length + later.shape[2], self.memory
        if length > room:
            memory = memory.new_empty(B, _room(length), g, d)
            memory[:, : self.length] = self.memory[:, : self.length]
        memory[:, self.length : length] = later.transpose(1, 2)
        return GrowableTensor(memory, length)

    def select(self, rows: Tensor) -> GrowableTensor:
        """These rows of the batch (B'), in this order."""
        return GrowableTensor(self.memory.index_select(0, rows), self.length)


def _room(positions: int) -> int:
    """The least power of two for that many."""
    return max(LEAST_ROOM, 1 << (positions - 1).bit_length())
