"""Counter-based random numbers: they depend on a key and a counter, not on earlier draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_GAMMA = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_BITS = (1 << 64) - 1  # mask of 64 bits
_MAX_DRAWS = 1 << 20  # counters for each item; no draw of an item is longer

Numbers = TypeVar("Numbers", int, NDArray[np.uint64])


def uniform(key: Sequence[int], draw: int, counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Numbers from [0, 1) by SplitMix64 (Steele, Lea and Flood, 2014).

    Args:
        key: integers, such as a seed and a step.
        draw: number of the draw, so that several draws of a key are independent.
        counters: an integer for each number.
    """
    state = 0
    for word in (*key, draw):
        state = mix(state ^ word)
    counter: NDArray[np.uint64] = state + counters.astype(np.uint64) * _GAMMA
    # The upper 53 bits, which is the precision of a double.
    numbers: NDArray[np.float64] = (mix(counter) >> 11) * np.float64(2.0**-53)
    return numbers


def mix(x: Numbers) -> Numbers:
    """Advance SplitMix64's counters by one step, and apply its finalizer (64 bits)."""
    y: Any = (x + _GAMMA) & _BITS  # either type; numpy's stubs make some of these signed
    y = ((y ^ (y >> 30)) * _MIX[0]) & _BITS
    y = ((y ^ (y >> 27)) * _MIX[1]) & _BITS
    result: Numbers = y ^ (y >> 31)
    return result


class Draws:
    """Random numbers for B items. The numbers of an item depend only on the key and its index."""

    def __init__(self, key: Sequence[int], items: NDArray[np.int64]) -> None:
        self.key = key
        self.items = items
        self._draw = 0

    def __len__(self) -> int:
        return len(self.items)

    def uniform(self, n: int) -> NDArray[np.float64]:
        """(B, n) numbers from [0, 1)."""
        self._draw += 1
        return uniform(self.key, self._draw, self.items[:, None] * _MAX_DRAWS + np.arange(n))

    def integers(self, high: int, n: int) -> NDArray[np.int64]:
        """(B, n) integers from 0 to high - 1."""
        return (self.uniform(n) * high).astype(np.int64)

    def permutations(self, n: int) -> NDArray[np.int64]:
        """(B, n): a random permutation of the integers from 0 to n - 1 in each row."""
        return np.argsort(self.uniform(n), axis=1)
