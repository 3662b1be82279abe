"""Which training pairs are left out, each reason by its name and counted; dev and test must be complete."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ablate.config import DataConfig
from ablate.data.sources import Source
from ablate.errors import DataError

EMPTY, IDENTICAL, DUPLICATE = "empty", "identical sides", "duplicate"
LONG, UNEVEN = "too long", "uneven"
SIDES = ("source", "target")

Pair = tuple[int, str, str]


def training_pairs(source: Source, data: DataConfig, left_out: Counter[str]) -> Iterator[Pair]:
    """The pairs of the training side that the filters of text leave, the others counted.

    Raises:
        DataError: something in the files cannot be used.
    """
    again = _repeated(source) if data.drop_duplicates else None
    for place, pair in enumerate(source.pairs()):
        if not pair[1] or not pair[2]:
            left_out[EMPTY] += 1
        elif data.drop_identical and pair[1] == pair[2]:
            left_out[IDENTICAL] += 1
        elif again is not None and again[place]:
            left_out[DUPLICATE] += 1
        else:
            yield pair


def complete_pairs(source: Source, split: str) -> list[Pair]:
    """All pairs of dev or test.

    Raises:
        DataError: a side is empty, or there is no pair at all.
    """
    pairs = []
    for pair in source.pairs():
        if not pair[1] or not pair[2]:
            side = 1 if pair[1] else 0
            where = source.where(pair[0], side)
            raise DataError(f"{where}: the {SIDES[side]} side is empty; {split} must be complete")
        pairs.append(pair)
    if not pairs:
        raise DataError(f"{source.files()[0]}: has no sentence pair")
    return pairs


def fits(lengths: NDArray[np.int64], data: DataConfig, left_out: Counter[str]) -> NDArray[np.bool_]:
    """Which training pairs of these lengths in tokens, (2, pairs), are short and even enough; others are counted."""
    short = np.asarray(lengths.max(axis=0) <= data.max_length)
    left_out[LONG] += int((~short).sum())
    if data.max_ratio is None:
        return short
    even = np.asarray(lengths.max(axis=0) <= data.max_ratio * lengths.min(axis=0))
    left_out[UNEVEN] += int((short & ~even).sum())
    kept: NDArray[np.bool_] = short & even
    return kept


def refuse_long(source: Source, pairs: Sequence[Pair], lengths: NDArray[np.int64], data: DataConfig) -> None:
    """Refuse pairs of dev or test, (2, pairs) in tokens, that are over the limit.

    Raises:
        DataError: naming the first.
    """
    over = np.flatnonzero(lengths.max(axis=0) > data.max_length)
    if len(over):
        side = int(lengths[0, over[0]] <= data.max_length)
        where = source.where(pairs[over[0]][0], side)
        raise DataError(f"{where}: is longer than data.max_length={data.max_length} tokens; raise it")


def _repeated(source: Source) -> NDArray[np.bool_]:
    """For each pair, whether the same stood before it: by 64-bit hashes, 40 bytes a pair while they are sorted."""
    hashes = np.fromiter(map(_hash, source.pairs()), dtype=np.uint64)
    repeated = np.ones(len(hashes), dtype=bool)
    repeated[np.unique(hashes, return_index=True)[1]] = False
    return repeated


def _hash(pair: Pair) -> int:
    return int.from_bytes(hashlib.blake2b(f"{pair[1]}\n{pair[2]}".encode(), digest_size=8).digest(), "little")
