"""Items of a generator as a split: drawn when a batch needs them, from a key, and never stored.

A hash of what is read says on which side an item is: a share of all possible items is held out, and
belongs to dev and test. An item of the other side is drawn again, so that training never meets an
item of the test split, as long as a size has items on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ablate.config.synthetic_data import DRAWN, MARKS, SyntheticData
from ablate.data import generators
from ablate.data.corpus import TokenSequences
from ablate.data.draws import Draws, mix
from ablate.data.generators import Items
from ablate.errors import DataError

VERSION = 1  # raised when the same settings would give other items
_TRIES = 200  # of a size that has all of its items on one side
_AMONG = 4096  # items of a pass over a training split without end
_KEYS = {"train": 20170612, "dev": 20170613, "test": 20170614}


@dataclass(frozen=True)
class DrawnItems(TokenSequences):
    """Items of the sizes `sizes`, which a key determines.

    data: names the generator, and its settings.
    key: of the random numbers.
    held_out: whether the items are of the side that training never sees.
    has_source: whether a batch has what an encoder reads apart.
    """

    data: SyntheticData
    key: tuple[int, ...]
    sizes: NDArray[np.int64]
    held_out: bool
    has_source: bool = False

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> NDArray[np.uint32]:
        ids: NDArray[np.uint32] = self.draw(np.array([index])).inputs[0].astype(np.uint32)
        return ids

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each item."""
        sizes, of_item = np.unique(self.sizes, return_inverse=True)
        return np.array([width(self.data, size) for size in sizes.tolist()], np.int32)[of_item]

    def first(self, count: int) -> DrawnItems:
        """The first items."""
        return replace(self, sizes=self.sizes[:count])

    def at_step(self, seed: int, step: int) -> DrawnItems:
        """New items of the same sizes; the same ones if training has a number of them."""
        return replace(self, key=(seed, step)) if self.data.train == DRAWN else self

    def answers(self, items: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of answers of each of some items."""
        is_answer = self.draw(np.asarray(items)).targets > 0
        return np.asarray(is_answer.sum(1), np.int64)

    def draw(self, items: NDArray[np.int64]) -> Items:
        """Some items (B, T), padded at the end where their sizes differ."""
        # A batch asks for its items twice: for the number of their answers, and for their tokens.
        asked = items.tobytes()
        if self._drawn.get("items") != asked:
            self._drawn.update(items=asked, drawn=self._draw(items))
        drawn: Items = self._drawn["drawn"]
        return drawn

    @cached_property
    def _drawn(self) -> dict[str, Any]:
        """The items drawn last."""
        return {}

    def _draw(self, items: NDArray[np.int64]) -> Items:
        sizes = self.sizes[items]
        T = max(width(self.data, size) for size in np.unique(sizes).tolist())
        padded = Items(np.zeros((len(items), T), np.int64), np.zeros((len(items), T), np.int64))
        for size in np.unique(sizes).tolist():
            drawn, _ = self._of_size(items[sizes == size], size)
            for whole, part in zip(padded, drawn, strict=True):
                whole[sizes == size, : part.shape[1]] = part
        return padded

    def overlap(self) -> float:
        """Share of the items that are not of their side, for want of others."""
        misses = 0
        for size in np.unique(self.sizes).tolist():
            _, left = self._of_size(np.flatnonzero(self.sizes == size), size)
            misses += left
        return misses / len(self)

    def _of_size(self, items: NDArray[np.int64], size: int) -> tuple[Items, int]:
        """Items of one size, and how many are on the wrong side after all tries."""
        drawn = drawn_once(self.data, Draws((*self.key, 0), items), size)
        wrong = np.flatnonzero(self._is_wrong(drawn.inputs))
        for attempt in range(1, _TRIES):
            if not len(wrong):
                break
            again = drawn_once(self.data, Draws((*self.key, attempt), items[wrong]), size)
            for before, after in zip(drawn, again, strict=True):
                before[wrong] = after
            wrong = wrong[self._is_wrong(again.inputs)]
        return drawn, len(wrong)

    def _is_wrong(self, inputs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which items (B, T) are not of the side of this split."""
        # A sum with weights by place, whose digits are then mixed, so that any two items differ.
        weights = mix(np.arange(inputs.shape[1], dtype=np.uint64)) | 1
        numbers = mix((inputs.astype(np.uint64) * weights).sum(1, dtype=np.uint64))
        is_held_out: NDArray[np.bool_] = numbers < int(self.data.held_out * 2**64)
        return is_held_out ^ self.held_out


def drawn_once(data: SyntheticData, draws: Draws, size: int) -> Items:
    """What the generator makes from random numbers."""
    made = _drawer(data)(draws, size, data)
    # A user's own may return views that cannot be written, such as those of np.broadcast_to.
    return Items(*(np.require(part, requirements="W") for part in made))


def _drawer(data: SyntheticData) -> Callable[..., Items]:
    return data.generator.draw or generators.DRAW[data.corpus]


@lru_cache(maxsize=10_000)
def width(data: SyntheticData, size: int) -> int:
    """Tokens of an item.

    Raises:
        DataError: the generator does not make what it should.
    """
    fault = fault_of(data, size)
    if fault is not None:
        raise DataError(f"corpus {data.corpus}: {fault}")
    return int(drawn_once(data, Draws((1,), np.arange(1)), size).inputs.shape[1])


def fault_of(data: SyntheticData, size: int) -> str | None:
    """What is wrong with the items of a generator, as a message."""
    many: object = _drawer(data)(Draws((1,), np.arange(8)), size, data)
    kinds = [type(part).__name__ for part in many] if isinstance(many, tuple) else []
    if kinds != ["ndarray", "ndarray"]:
        given = ", ".join(kinds) if kinds else type(many).__name__
        return f"must return a tuple of two arrays of numpy, inputs and targets; got {given}"
    inputs, targets = cast("Items", many)
    alone = drawn_once(data, Draws((1,), np.arange(3, 4)), size)
    if inputs.ndim != 2 or inputs.shape != targets.shape or len(inputs) != 8:
        return (
            f"8 items have inputs {inputs.shape} and targets {targets.shape}: both must be (8, T)"
        )
    for name, ids in (("inputs", inputs), ("targets", targets)):
        if not ((ids >= 0) & (ids < data.vocab_size)).all():
            allowed = f"{name} must be ids from 0 to {data.vocab_size - 1}"
            return f"{allowed}, and are from {ids.min()} to {ids.max()}"
    if ((targets > 0) & (targets < MARKS)).any():  # <unk>, <s> and </s>, which are no answers
        return f"targets must be 0, where nothing is to be predicted, or ids from {MARKS}"
    if not targets.any(1).all():
        return "an item has nothing to predict"
    if not all(map(np.array_equal, (inputs[3:4], targets[3:4]), alone)):
        return "an item depends on those that are drawn with it; use the numbers of `draws` alone"
    return None


def items_of(
    data: SyntheticData, split: str, size: int | None = None, has_source: bool = False
) -> DrawnItems:
    """The items of a split: train, dev or test.

    All test items have the length, or the pairs, `size`; those of other splits, and of test without
    one, have the sizes of training. `has_source`: see `DrawnItems`.
    """
    count = _AMONG if getattr(data, split) == DRAWN else int(getattr(data, split))
    least = data.shortest or data.largest
    most = data.largest
    if split == "test" and size is not None:
        least = most = size
    sizes = least + np.arange(count) % (most - least + 1)
    empty = np.empty(0, np.uint32), np.empty(0, np.int64)
    key = (_KEYS[split],)
    return DrawnItems(*empty, data, key, sizes, split != "train", has_source)


def texts_of(items: DrawnItems) -> list[str]:
    """The items in words: `k3:v5` reads k3 and is to predict v5."""
    texts = []
    names = ["", "", "", "", *items.data.generator.tokens(items.data)]
    for start in range(0, len(items), 256):
        some = items.draw(np.arange(start, min(start + 256, len(items))))
        for inputs, targets in zip(*(part.tolist() for part in some), strict=True):
            words = []
            for read, target in zip(inputs, targets, strict=True):
                if read:
                    words.append(f"{names[read]}:{names[target]}" if target else names[read])
            texts.append(" ".join(words))
    return texts
