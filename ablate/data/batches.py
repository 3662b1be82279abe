"""Batches with a budget of tokens, of records with similar lengths (section 5.1), and padding.

`BatchOrder` serves all tasks; `PairBatch` and `collate` serve tasks that read one text and predict
another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.corpus import Split, TokenSequences
from ablate.data.tokenizer import BOS, EOS, PAD

# Largest noise, in tokens, in the order by length, so that batches differ between epochs
LENGTH_NOISE = 2.0
_SUBSET_KEY = 20170612  # the date of the paper; another number would select other records


def subset(count: int, fraction: float) -> NDArray[np.int64]:
    """Indices of a random subset of `count` records, ascending.

    All seeds use the same subset, and a larger subset contains all smaller subsets, so that runs
    differ only in the amount of training data.
    """
    if fraction == 1:
        return np.arange(count)
    # Each record has a random number; the subset has the smallest numbers.
    numbers = np.random.Generator(np.random.Philox(key=_SUBSET_KEY)).random(count)
    return np.sort(np.argsort(numbers, kind="stable")[: max(1, round(fraction * count))])


class BatchOrder:
    """Assigns records to the batch of each step, without a state.

    In each epoch, records are sorted by length, so that neighbors have similar lengths in all
    fields, and cut into batches whose longest fields add up to batch_tokens. The batches are then
    shuffled. All epochs have the same number of batches. A batch exceeds batch_tokens by less than
    one record.
    """

    def __init__(self, split: Split, batch_tokens: int, seed: int, fraction: float = 1.0) -> None:
        """Order the records of a training split, or of a share of them.

        Raises:
            ValueError: a record is longer than batch_tokens.
        """
        self.records = None if fraction == 1 else subset(len(split), fraction)  # None: all
        self.first, self.last, self.longest = _lengths(split, self.records)
        if int(self.longest.max()) > batch_tokens:
            raise ValueError(
                f"a sentence of {self.longest.max()} tokens does not fit in "
                f"batch_tokens={batch_tokens}"
            )
        self.batch_tokens = batch_tokens
        self.seed = seed
        self._epoch: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    @cached_property
    def batches_per_epoch(self) -> int:
        """Number of batches in one pass over the records."""
        # From the sum of lengths, which is the same in all epochs.
        return -(-int(self.longest.sum()) // self.batch_tokens)

    def at(self, step: int) -> NDArray[np.int64]:
        """Indices of the records in the batch of a step, counted from 1."""
        epoch, index = divmod(step - 1, self.batches_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self.epoch(epoch))
        return self._epoch[1][index]

    def epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        """The batches of an epoch, in order."""
        # A new generator for each epoch, so that resuming needs no state.
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        difference = random.random(len(self.longest))
        # In place, because a copy for 5 million records takes 40 MB
        difference *= LENGTH_NOISE
        difference += self.first
        difference -= self.last
        order = _sort_by_length(self.longest, difference)
        ends = np.cumsum(self.longest[order], dtype=np.int64)
        # Batch k starts at the first record that ends beyond k * batch_tokens.
        starts = np.searchsorted(ends, self.batch_tokens * np.arange(1, self.batches_per_epoch) + 1)
        if self.records is not None:
            order = self.records[order]
        batches = np.split(order, starts)
        return [batches[i] for i in random.permutation(len(batches))]


def largest_padded_batch(split: Split, batch_tokens: int, fraction: float = 1.0) -> int:
    """Padded tokens of the longest field in the largest batch, which all epochs have.

    Epochs sort by the longest field first, so the noise only swaps records whose longest fields
    have the same length.
    """
    _, _, longest = _lengths(split, None if fraction == 1 else subset(len(split), fraction))
    ordered = np.sort(longest).astype(np.int64)
    ends = np.cumsum(ordered)
    starts = np.searchsorted(ends, np.arange(0, ends[-1], batch_tokens) + 1)
    counts = np.diff(np.append(starts, len(ordered)))
    widths = ordered[np.maximum(starts + counts - 1, 0)]  # the last record of a batch is longest
    return int((counts * widths).max())


def divide(split: Split, records: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """Divide a batch into `count` parts with about equal numbers of tokens; some may be empty."""
    if count == 1:
        return [records]
    ends = np.cumsum(split.lengths(records).max(axis=0), dtype=np.int64)
    # By integers, so that the cuts are the same on every machine.
    cuts = np.searchsorted(ends * count, ends[-1] * np.arange(1, count), side="right")
    return np.split(records, cuts)


def micro_batches(
    split: Split, records: NDArray[np.int64] | Sequence[int], limit: int
) -> Iterator[NDArray[np.int64]]:
    """Divide a batch into micro-batches of at most `limit` padded tokens per field.

    A record above the limit is a micro-batch of one record. The number of micro-batches is the
    smallest possible. Their sizes are as even as possible, because a small micro-batch takes as
    many calls as a large one.

    Yields:
        Indices of the records of each micro-batch.
    """
    records = np.asarray(records)
    longest = split.lengths(records).max(axis=0)
    fewest = len(_slices(longest, limit))
    if fewest > 1:  # the smallest limit with this number of micro-batches makes sizes even
        lower = range(1, limit)
        limit = 1 + bisect_left(lower, True, key=lambda n: len(_slices(longest, n)) == fewest)
    for rows in _slices(longest, limit):
        yield records[rows]


def eval_batches(split: Split, tokens: int) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of all records in batches of about `tokens` tokens and similar lengths."""
    first, last, longest = _lengths(split, None)
    order = _sort_by_length(longest, np.subtract(first, last, dtype=np.float64))
    # Cut where the running sum passes a multiple of `tokens`.
    cuts = np.flatnonzero(np.diff((np.cumsum(longest[order], dtype=np.int64) - 1) // tokens)) + 1
    yield from np.split(order, cuts)


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Pad lists of token ids at the end with 0 -> (B, longest)."""
    # By numpy, because torch warns of the read-only arrays of a split.
    out = np.zeros((len(sequences), max(map(len, sequences))), dtype=np.int64)
    for row, sequence in enumerate(sequences):
        out[row, : len(sequence)] = sequence
    return torch.from_numpy(out)


def pad_sequences(
    sequences: TokenSequences,
    records: Sequence[int] | NDArray[np.int64],
    start: int | None = None,
    end: int | None = None,
) -> Tensor:
    """Pad sequences of a text field at the end with 0.

    Args:
        sequences: the field of a split.
        records: B indices.
        start: id to prepend to each sequence, such as BOS; None for none.
        end: id to append to each sequence, such as EOS; None for none.

    Returns:
        Token ids (B, longest sequence with its marks).
    """
    starts = sequences.offsets[records]
    lengths = sequences.offsets[np.asarray(records) + 1] - starts
    columns = np.arange(int(lengths.max()))
    is_token = columns < lengths[:, None]  # (B, longest)
    offset = int(start is not None)
    width = offset + len(columns) + int(end is not None)
    out = np.full((len(lengths), width), PAD, dtype=np.int64)
    ids = sequences.ids[(starts[:, None] + columns)[is_token]]
    out[:, offset : offset + len(columns)][is_token] = ids
    if start is not None:
        out[:, 0] = start
    if end is not None:
        out[np.arange(len(lengths)), offset + lengths] = end
    return torch.from_numpy(out)


def _lengths(
    split: Split, records: NDArray[np.int64] | None
) -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]]:
    """Lengths of the first, the last and the longest field of records; None for all records.

    16 bits suffice, because a text has at most 60,001 tokens.
    """
    fields = [split[field].lengths.astype(np.uint16) for field in split.fields]
    if records is not None:
        fields = [lengths[records] for lengths in fields]
    longest = fields[0]
    for lengths in fields[1:]:
        longest = np.maximum(longest, lengths)
    return fields[0], fields[-1], longest


def _sort_by_length(
    longest: NDArray[np.uint16], difference: NDArray[np.float64]
) -> NDArray[np.int64]:
    """An order in which neighbors have similar lengths in the first and the last field.

    Records are sorted by the longest field, then by the difference of the two fields: ascending if
    the longest length is even, descending if it is odd. So neighbors are similar also where the
    longest length changes. This order needs half as much padding as sorting by target, then by
    source (benchmarks/LOG.md).

    Args:
        longest: length of the longest field of each record.
        difference: length of the first field minus length of the last field; overwritten.
    """
    np.negative(difference, out=difference, where=longest % 2 == 1)
    return np.lexsort((difference, longest))


def _slices(lengths: NDArray[np.int32], limit: int) -> list[slice]:
    """Cut records into consecutive slices, each as long as `limit` padded tokens allow."""
    slices = []
    start = 0
    while start < len(lengths):
        # Padded tokens: the longest record so far times the number of records.
        widths = np.maximum.accumulate(lengths[start:])
        count = int(np.searchsorted(widths * np.arange(1, len(widths) + 1), limit, side="right"))
        slices.append(slice(start, start + max(1, count)))
        start += max(1, count)
    return slices


class SequenceBatch:
    """Base of batches of sequences.

    positions: (n,), index of each target token in the flattened (B, T).
    """

    positions: Tensor

    @property
    def tokens(self) -> int:
        """Number of target tokens."""
        return len(self.positions)

    def to(self, device: torch.device) -> Self:
        """Copy to a device."""
        moved = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                moved[name] = value.to(device, non_blocking=True)
        return replace(self, **moved)  # type: ignore[type-var]

    def select_targets(self, x: Tensor) -> Tensor:
        """Select the values at target tokens: (B, T, ...) -> (n, ...)."""
        # By indices, because a mask would stall a GPU to count its elements.
        return x.flatten(0, 1).index_select(0, self.positions)


@dataclass(frozen=True)
class PairBatch(SequenceBatch):
    """A padded batch of sentence pairs.

    source: (B, S), sentences, each followed by EOS; padded with 0.
    target_in: (B, T), BOS, then the sentence; padded with 0.
    target_out: (B, T), the sentence, then EOS; padded with 0.
    positions: (n,), index of each token of target_out in the flattened (B, T).
    """

    source: Tensor
    target_in: Tensor
    target_out: Tensor
    positions: Tensor

    @property
    def targets(self) -> Tensor:
        """The target tokens that are not padding, (n)."""
        return self.select_targets(self.target_out)


def collate(
    split: Split, records: Sequence[int] | NDArray[np.int64], source: str, target: str
) -> PairBatch:
    """Make the padded batch of some records."""
    encoder_input = pad_sequences(split[source], records, end=EOS)
    target_in = pad_sequences(split[target], records, start=BOS)
    target_out = pad_sequences(split[target], records, end=EOS)
    return PairBatch(encoder_input, target_in, target_out, target_out.flatten().nonzero()[:, 0])
