"""Random numbers that follow from a key and a place alone, whatever was drawn before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_GAMMA = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_BITS = (1 << 64) - 1  # products and sums keep 64 bits
_PLACES = 1 << 20  # of the draws of an item; no item is longer

Numbers = TypeVar("Numbers", int, NDArray[np.uint64])


def uniform(key: Sequence[int], draw: int, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Numbers from [0, 1) that follow from a key, the number of a draw and a place alone.

    SplitMix64 (Steele, Lea and Flood, 2014) as a function of its counter.
    """
    state = 0
    for word in (*key, draw):
        state = mixed(state ^ word)
    counter: NDArray[np.uint64] = state + places.astype(np.uint64) * _GAMMA
    # The upper 53 bits: as many as a double has digits.
    numbers: NDArray[np.float64] = (mixed(counter) >> 11) * np.float64(2.0**-53)
    return numbers


def mixed(x: Numbers) -> Numbers:
    """The finalizer of SplitMix64, after one step of its counter; of numbers with 64 bits."""
    y: Any = (x + _GAMMA) & _BITS  # either type; numpy's stubs make some of these signed
    y = ((y ^ (y >> 30)) * _MIX[0]) & _BITS
    y = ((y ^ (y >> 27)) * _MIX[1]) & _BITS
    mixed: Numbers = y ^ (y >> 31)
    return mixed


class Draws:
    """The random numbers of B items, each of which follow from the key and its number alone."""

    def __init__(self, key: Sequence[int], items: NDArray[np.int64]) -> None:
        self.key = key
        self.items = items
        self._draw = 0

    def __len__(self) -> int:
        return len(self.items)

    def uniform(self, n: int) -> NDArray[np.float64]:
        """(B, n) numbers from [0, 1)."""
        self._draw += 1
        return uniform(self.key, self._draw, self.items[:, None] * _PLACES + np.arange(n))

    def integers(self, below: int, n: int) -> NDArray[np.int64]:
        """(B, n) integers from 0 to below - 1."""
        return (self.uniform(n) * below).astype(np.int64)

    def orders(self, n: int) -> NDArray[np.int64]:
        """(B, n): a random order of the integers from 0 to n - 1 in each row."""
        return np.argsort(self.uniform(n), axis=1)
