"""Token-budget batches of records of similar lengths (section 5.1), and their padding.

The order of records serves every task; `PairBatch` and `collate` serve tasks that read one text and
predict another.
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

from ablate.data.corpus import Split, TokenSequences, subset
from ablate.data.tokenizer import BOS, EOS, PAD

# Tokens; records whose shorter fields differ by less may swap places between epochs
LENGTH_NOISE = 2.0


class BatchOrder:
    """Assigns records to batches, as a pure function of its arguments, epoch and index.

    Within an epoch, records are sorted so that neighbors have similar lengths in every field, cut
    where their longest fields add up to batch_tokens, and the batches are shuffled. Every epoch has
    the same number of batches. A batch exceeds its budget by less than one record.
    """

    def __init__(self, split: Split, batch_tokens: int, seed: int, fraction: float = 1.0) -> None:
        """Order the records of a training split, or a share of them.

        Raises:
            ValueError: a record is longer than batch_tokens.
        """
        self.kept = None if fraction == 1 else subset(len(split), fraction)  # None: all
        self.first, self.last, self.longest = _lengths(split, self.kept)
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
        """Steps in one pass over the training data."""
        # From the sum and not from a division into batches, so that all epochs have as many steps.
        return -(-int(self.longest.sum()) // self.batch_tokens)

    def at(self, step: int) -> NDArray[np.int64]:
        """Indices of the records in the batch of a step, counted from 1."""
        epoch, index = divmod(step - 1, self.batches_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self.epoch(epoch))
        return self._epoch[1][index]

    def epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        """The batches of an epoch, in order."""
        # Counter-based: any epoch can be made without those before it, so resuming needs no state.
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        difference = random.random(len(self.longest))
        difference *= LENGTH_NOISE  # in place: a copy for 5 million records takes 40 MB
        difference += self.first
        difference -= self.last
        order = _by_lengths(self.longest, difference)
        ends = np.cumsum(self.longest[order], dtype=np.int64)
        # The k-th batch starts at the first record that ends beyond k budgets, in every epoch.
        starts = np.searchsorted(ends, self.batch_tokens * np.arange(1, self.batches_per_epoch) + 1)
        batches = np.split(order if self.kept is None else self.kept[order], starts)
        return [batches[i] for i in random.permutation(len(batches))]


def largest_padded_batch(split: Split, batch_tokens: int, fraction: float = 1.0) -> int:
    """Padded tokens of the longest field in the largest batch of every epoch.

    An epoch sorts by the longest field before all else, and cuts at multiples of batch_tokens: only
    records of equal lengths change places between epochs, so all have batches of the same padded
    size.
    """
    _, _, longest = _lengths(split, None if fraction == 1 else subset(len(split), fraction))
    ordered = np.sort(longest).astype(np.int64)
    ends = np.cumsum(ordered)
    starts = np.searchsorted(ends, np.arange(0, ends[-1], batch_tokens) + 1)
    counts = np.diff(np.append(starts, len(ordered)))
    last = ordered[np.maximum(starts + counts - 1, 0)]  # of a batch, which is its longest
    return int((counts * last).max())


def divide(split: Split, records: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """Divide a batch into `count` parts with about as many tokens each; some may be empty."""
    if count == 1:
        return [records]
    ends = np.cumsum(split.lengths(records).max(axis=0), dtype=np.int64)
    # In whole numbers: the cuts must be the same on every machine.
    cuts = np.searchsorted(ends * count, ends[-1] * np.arange(1, count), side="right")
    return np.split(records, cuts)


def micro_batches(
    split: Split, records: NDArray[np.int64] | Sequence[int], limit: int
) -> Iterator[NDArray[np.int64]]:
    """Divide a batch into parts of at most `limit` padded tokens per field, or of single records.

    The parts are as few as possible, and then as even as possible: a small last part would cost as
    many calls as a large one.

    Yields:
        The indices of each part's records.
    """
    records = np.asarray(records)
    longest = split.lengths(records).max(axis=0)
    fewest = len(_parts(longest, limit))
    if fewest > 1:  # the smallest limit with this number of parts makes them as even as possible
        lower = range(1, limit)
        limit = 1 + bisect_left(lower, True, key=lambda n: len(_parts(longest, n)) == fewest)
    for part in _parts(longest, limit):
        yield records[part]


def eval_batches(split: Split, tokens: int) -> Iterator[NDArray[np.int64]]:
    """Every record once, as indices: batches of about `tokens` tokens and of similar lengths."""
    first, last, longest = _lengths(split, None)
    order = _by_lengths(longest, np.subtract(first, last, dtype=np.float64))
    # A cut wherever the running sum passes a multiple of `tokens`.
    cuts = np.flatnonzero(np.diff((np.cumsum(longest[order], dtype=np.int64) - 1) // tokens)) + 1
    yield from np.split(order, cuts)


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Lists of token ids as one tensor (B, longest), padded with 0 at the end."""
    # Filled by numpy: sequences of a split are read-only, of which torch warns each time.
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
    """Sequences of a text field as one tensor, padded at the end.

    Args:
        sequences: the field of a split.
        records: B indices.
        start: id to prepend to each sequence, such as BOS; None to prepend none.
        end: id to append to each sequence, such as EOS; None to append none.

    Returns:
        Token ids (B, longest sequence with its marks).
    """
    starts = sequences.offsets[records]
    lengths = sequences.offsets[np.asarray(records) + 1] - starts
    columns = np.arange(int(lengths.max()))
    is_token = columns < lengths[:, None]  # (B, longest)
    before = int(start is not None)
    after = int(end is not None)
    out = np.full((len(lengths), before + len(columns) + after), PAD, dtype=np.int64)
    ids = sequences.ids[(starts[:, None] + columns)[is_token]]
    out[:, before : before + len(columns)][is_token] = ids
    if start is not None:
        out[:, 0] = start
    if end is not None:
        out[np.arange(len(lengths)), before + lengths] = end
    return torch.from_numpy(out)


def _lengths(
    split: Split, kept: NDArray[np.int64] | None
) -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint16]]:
    """Lengths of the first field, the last and the longest; 16 bits hold 60,001 tokens."""
    fields = [split[field].lengths.astype(np.uint16) for field in split.fields]
    if kept is not None:
        fields = [lengths[kept] for lengths in fields]
    longest = fields[0]
    for lengths in fields[1:]:
        longest = np.maximum(longest, lengths)
    return fields[0], fields[-1], longest


def _by_lengths(longest: NDArray[np.uint16], difference: NDArray[np.float64]) -> NDArray[np.int64]:
    """An order in which neighbors have similar lengths in both fields.

    Sorted by the longest field, and among equals by the difference of two fields: ascending where
    the longest is even and descending where it is odd, so that neighbors are alike where the
    longest changes as well. Half as much padding results as from sorting by target and then by
    source (benchmarks/LOG.md).

    Args:
        longest: length of each record's longest field.
        difference: length of the first field minus that of the last; overwritten.
    """
    np.negative(difference, out=difference, where=longest % 2 == 1)
    return np.lexsort((difference, longest))


def _parts(lengths: NDArray[np.int32], limit: int) -> list[slice]:
    """Cut records into slices, in their order, each as long as `limit` padded tokens allow."""
    parts = []
    start = 0
    while start < len(lengths):
        # A part is padded to its longest record: its size is this width times its records.
        widths = np.maximum.accumulate(lengths[start:])
        fits = int(np.searchsorted(widths * np.arange(1, len(widths) + 1), limit, side="right"))
        parts.append(slice(start, start + max(1, fits)))
        start += max(1, fits)
    return parts


class SequenceBatch:
    """Base of batches of sequences.

    positions: (n,), indices of the target tokens into (B, T), flattened.
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
    positions: (n,), indices of the tokens in target_out, flattened to (B * T,).
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
