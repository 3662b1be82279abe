"""Generated items as a split: drawn from a key when a batch needs them, and never stored.

The hash of an item's inputs decides whether it is for training or held out for dev and test. An
item that is not for the split is drawn again, so that training has no items of the test split. The
exceptions are sizes with very few items; their test items are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
from ablate.data.sources import SHOWN
from ablate.data.tokenizer import SymbolTokenizer
from ablate.errors import Fault, StudyError, listed
from ablate.formatting import ellipsis

VERSION = 1  # raised when the same settings would give other items
_TRIES = 200  # draws of an item before an item that is not for the split is used
_ENDLESS_ITEMS = 4096  # items of a pass over a training split without an end
_KEYS = {"train": 20170612, "dev": 20170613, "test": 20170614}


@dataclass(frozen=True)
class DrawnItems(TokenSequences):
    """Items that follow from a key.

    data: settings of the generator.
    key: key of the random numbers.
    sizes: size of each item.
    held_out: whether the items are for dev or test.
    has_source: whether batches have a source for an encoder.
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
        """Number of tokens of each item."""
        sizes, indices = np.unique(self.sizes, return_inverse=True)
        return np.array([width(self.data, size) for size in sizes.tolist()], np.int32)[indices]

    def first(self, count: int) -> DrawnItems:
        """The first items."""
        return replace(self, sizes=self.sizes[:count])

    def at_step(self, seed: int, step: int) -> DrawnItems:
        """New items of the same sizes, unless `data.train` is a number of items."""
        return replace(self, key=(seed, step)) if self.data.train == DRAWN else self

    def answers(self, items: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Number of answers in each of these items."""
        is_answer = self.draw(np.asarray(items)).targets > 0
        return np.asarray(is_answer.sum(1), np.int64)

    def draw(self, items: NDArray[np.int64]) -> Items:
        """Draw these items (B, T), padded at the end."""
        # The last result is cached, because a batch needs the number of answers, then the tokens.
        indices = items.tobytes()
        if self._cache.get("indices") != indices:
            self._cache.update(indices=indices, items=self._draw(items))
        result: Items = self._cache["items"]
        return result

    @cached_property
    def _cache(self) -> dict[str, Any]:
        """Indices and items of the last call of `draw`."""
        return {}

    def _draw(self, items: NDArray[np.int64]) -> Items:
        sizes = self.sizes[items]
        T = max(width(self.data, size) for size in np.unique(sizes).tolist())
        padded = Items(np.zeros((len(items), T), np.int64), np.zeros((len(items), T), np.int64))
        for size in np.unique(sizes).tolist():
            drawn, _ = self._draw_size(items[sizes == size], size)
            for padded_ids, ids in zip(padded, drawn, strict=True):
                padded_ids[sizes == size, : ids.shape[1]] = ids
        return padded

    def overlap(self) -> float:
        """Share of the items of a test split that may occur in training, because no item of their
        size is held out, or hardly any item is not.
        """
        train = make_items(self.data, "train")
        count = 0
        for size in np.unique(self.sizes).tolist():
            items = np.flatnonzero(self.sizes == size)
            _, wrong = self._draw_size(items, size)
            train_items = np.flatnonzero(train.sizes == size)[: len(items)]
            _, wrong_in_training = train._draw_size(train_items, size)
            count += len(items) if wrong_in_training else wrong
        return count / len(self)

    def _draw_size(self, items: NDArray[np.int64], size: int) -> tuple[Items, int]:
        """Draw items of one size; return also how many are not for this split after all tries."""
        drawn = generate(self.data, Draws((*self.key, 0), items), size)
        wrong = np.flatnonzero(self._is_wrong(drawn.inputs))
        for attempt in range(1, _TRIES):
            if not len(wrong):
                break
            redrawn = generate(self.data, Draws((*self.key, attempt), items[wrong]), size)
            for ids, new_ids in zip(drawn, redrawn, strict=True):
                ids[wrong] = new_ids
            wrong = wrong[self._is_wrong(redrawn.inputs)]
        return drawn, len(wrong)

    def _is_wrong(self, inputs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether items (B, T) are not for this split: (B,)."""
        # A hash of each item: a weighted sum of its ids, mixed.
        weights = mix(np.arange(inputs.shape[1], dtype=np.uint64)) | 1
        hashes = mix((inputs.astype(np.uint64) * weights).sum(1, dtype=np.uint64))
        is_held_out: NDArray[np.bool_] = hashes < int(self.data.held_out * 2**64)
        return is_held_out ^ self.held_out


def generate(data: SyntheticData, draws: Draws, size: int) -> Items:
    """Generate items of a size from random numbers."""
    arrays = _generator(data)(draws, size, data)
    # Copy read-only arrays, which a user's generator may return, for example of np.broadcast_to.
    return Items(*(np.require(array, requirements="W") for array in arrays))


def _generator(data: SyntheticData) -> Callable[..., Items]:
    return data.generator.draw or generators.DRAW[data.corpus]


@lru_cache(maxsize=10_000)
def width(data: SyntheticData, size: int) -> int:
    """Number of tokens of an item of a size.

    Raises:
        StudyError: the generator has a fault; see `find_fault`.
    """
    fault = find_fault(data, size)
    if fault is not None:
        raise StudyError(Fault(fault, subject=f"corpus {data.corpus}"))
    return int(generate(data, Draws((1,), np.arange(1)), size).inputs.shape[1])


def find_fault(data: SyntheticData, size: int) -> str | None:
    """Find a fault in the items of a generator; None if they are valid."""
    result: object = _generator(data)(Draws((1,), np.arange(8)), size, data)
    types = [type(array).__name__ for array in result] if isinstance(result, tuple) else []
    if types != ["ndarray", "ndarray"]:
        returned = ", ".join(types) if types else type(result).__name__
        return f"must return a tuple of two arrays of numpy, inputs and targets; got {returned}"
    inputs, targets = cast("Items", result)
    alone = generate(data, Draws((1,), np.arange(3, 4)), size)
    if inputs.ndim != 2 or inputs.shape != targets.shape or len(inputs) != 8:
        return (
            f"8 items have inputs {inputs.shape} and targets {targets.shape}: both must be (8, T)"
        )
    for name, ids in (("inputs", inputs), ("targets", targets)):
        if not ((ids >= 0) & (ids < data.vocab_size)).all():
            allowed = f"{name} must be ids from 0 to {data.vocab_size - 1}"
            return f"{allowed}, and are from {ids.min()} to {ids.max()}"
    if ((targets > 0) & (targets < MARKS)).any():  # <unk>, <s> and </s> cannot be answers
        return f"targets must be 0, where nothing is to be predicted, or ids from {MARKS}"
    if not targets.any(1).all():
        return "an item has nothing to predict"
    if (fault := _fault_in_names(data.generator.tokens(data))) is not None:
        return fault
    if not all(map(np.array_equal, (inputs[3:4], targets[3:4]), alone)):
        return "an item depends on items that are drawn with it; use only the numbers of `draws`"
    return None


def _fault_in_names(names: Iterable[object]) -> str | None:
    """Find a name that texts of items cannot have, or that two tokens have."""
    marks = SymbolTokenizer.of(()).names
    known: set[object] = set()
    for name in names:
        shown = ellipsis(repr(name), SHOWN)
        if not isinstance(name, str) or name.split() != [name] or name in marks:
            return f"the name of a token must be one word, other than {listed(marks)}; got {shown}"
        if name in known:
            return f"tokens must have different names; got {shown} twice"
        known.add(name)
    return None


def make_items(
    data: SyntheticData, split: str, size: int | None = None, has_source: bool = False
) -> DrawnItems:
    """Make the items of a split. All test items have the given size, or by default the sizes of
    training. `has_source`: see `DrawnItems`.
    """
    count = _ENDLESS_ITEMS if getattr(data, split) == DRAWN else int(getattr(data, split))
    smallest = data.shortest or data.largest
    largest = data.largest
    if split == "test" and size is not None:
        smallest = largest = size
    sizes = smallest + np.arange(count) % (largest - smallest + 1)
    no_ids = np.empty(0, np.uint32)
    no_offsets = np.empty(0, np.int64)
    key = (_KEYS[split],)
    return DrawnItems(no_ids, no_offsets, data, key, sizes, split != "train", has_source)


def texts_of(items: DrawnItems) -> list[str]:
    """The items as text, in which `k3:v5` is a token to read and the token to predict after it."""
    texts = []
    names = ["", "", "", "", *items.data.generator.tokens(items.data)]
    for start in range(0, len(items), 256):
        chunk = items.draw(np.arange(start, min(start + 256, len(items))))
        for inputs, targets in zip(chunk.inputs.tolist(), chunk.targets.tolist(), strict=True):
            words = []
            for token, target in zip(inputs, targets, strict=True):
                if token:
                    words.append(f"{names[token]}:{names[target]}" if target else names[token])
            texts.append(" ".join(words))
    return texts
