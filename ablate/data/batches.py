"""Token-budget batches of sentences of similar length (section 5.1)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.corpus import Side, Split, subset
from ablate.data.tokenizer import BOS, EOS, PAD

LENGTH_NOISE = 2.0  # tokens: of pairs with longer sides alike, shorter ones this near may change places between epochs


@dataclass(frozen=True)
class Batch:
    """Padded token ids, and where the target ones stand that count.

    source: (B, S), each sentence ended by EOS.
    target_in: (B, T), begun by BOS; target_out: (B, T), ended by EOS; both padded with 0.
    places: (n), where in the B * T places of target_out the n tokens stand that are no padding.
    """

    source: Tensor
    target_in: Tensor
    target_out: Tensor
    places: Tensor

    @property
    def tokens(self) -> int:
        """Target tokens that are not padding."""
        return len(self.places)

    @property
    def targets(self) -> Tensor:
        """(n): the target tokens that are not padding."""
        return self.at_targets(self.target_out)

    def at_targets(self, x: Tensor) -> Tensor:
        """(B, T, ...) -> (n, ...): what stands at them. Picked by place, since a GPU stops to count a mask."""
        return x.flatten(0, 1).index_select(0, self.places)

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        tensors = (self.source, self.target_in, self.target_out, self.places)
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in tensors))


class BatchOrder:
    """Which sentences form which batch: a pure function of (lengths, batch_tokens, seed, epoch, index, fraction).

    Within an epoch, pairs are sorted so that neighbours are nearly alike in both lengths; cut where the longer
    sides add up to batch_tokens; and the batches are shuffled. Every epoch has the same number of batches. A batch
    exceeds its budget by less than one sentence.
    """

    def __init__(self, split: Split, batch_tokens: int, seed: int, fraction: float = 1.0) -> None:
        self.kept = None if fraction == 1 else subset(len(split), fraction)  # None: all
        lengths = [_lengths(side) for side in (split.source, split.target)]
        self.source, self.target = lengths if self.kept is None else (side[self.kept] for side in lengths)
        self.longer = np.maximum(self.source, self.target)
        if int(self.longer.max()) > batch_tokens:
            raise ValueError(f"a sentence of {self.longer.max()} tokens does not fit in batch_tokens={batch_tokens}")
        self.batch_tokens = batch_tokens
        self.seed = seed
        self._epoch: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    @cached_property
    def batches_per_epoch(self) -> int:
        """Steps in one pass over the training side."""
        return -(-int(self.longer.sum()) // self.batch_tokens)

    def at(self, step: int) -> NDArray[np.int64]:
        """The sentences of the batch of a step, counted from 1."""
        epoch, index = divmod(step - 1, self.batches_per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self.epoch(epoch))
        return self._epoch[1][index]

    def epoch(self, epoch: int) -> list[NDArray[np.int64]]:
        """The batches of an epoch, in order."""
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        lean = random.random(len(self.longer))
        lean *= LENGTH_NOISE  # in place: of 5 million sentences every copy is felt
        lean += self.source
        lean -= self.target
        order = _by_both_lengths(self.longer, lean)
        ends = np.cumsum(self.longer[order], dtype=np.int64)
        starts = np.searchsorted(ends, self.batch_tokens * np.arange(1, self.batches_per_epoch) + 1)
        batches = np.split(order if self.kept is None else self.kept[order], starts)
        return [batches[i] for i in random.permutation(len(batches))]


def _lengths(side: Side) -> NDArray[np.uint16]:
    """The lengths of a side's sentences, none of which has more than 60,001 tokens."""
    return side.lengths.astype(np.uint16)


def _by_both_lengths(longer: NDArray[np.uint16], lean: NDArray[np.float64]) -> NDArray[np.int64]:
    """An order of pairs in which neighbours have nearly the same lengths on both sides.

    By the longer side, and within it by the lean, up where that side is even and down where it is odd: so the
    neighbours where it changes mostly lean alike too. Half as much is padding as in an order by target and then by
    source (benchmarks/LOG.md).

    Args:
        longer: the length of the longer side.
        lean: how much longer the source is than the target; is written over.
    """
    np.negative(lean, out=lean, where=longer % 2 == 1)
    return _sorted_by(longer, lean)


def _sorted_by(first: NDArray[np.uint16], second: NDArray[np.float64]) -> NDArray[np.int64]:
    """np.lexsort((second, first)), several times as fast for 5 million: a radix sort, and then many small ones."""
    order = np.argsort(first, kind="stable")  # by radix, in 16 bits
    sizes = np.bincount(first)
    ends = np.cumsum(sizes)
    for end, size in zip(ends[sizes > 0], sizes[sizes > 0], strict=True):
        group = order[end - size : end]
        seconds = second[group]
        by_second = np.argsort(seconds)
        if np.any(np.diff(seconds[by_second]) == 0):  # hardly ever in training; the fast sort leaves them in any order
            by_second = np.argsort(seconds, kind="stable")
        order[end - size : end] = group[by_second]
    return order


def make_batch(split: Split, sentences: Sequence[int] | NDArray[np.int64]) -> Batch:
    """The padded batch of these sentences."""
    source = _padded(split.source, sentences, EOS, ahead=False)
    target_out = _padded(split.target, sentences, EOS, ahead=False)
    target_in = _padded(split.target, sentences, BOS, ahead=True)
    return Batch(source, target_in, target_out, target_out.flatten().nonzero()[:, 0])


def micro_batches(split: Split, sentences: NDArray[np.int64], limit: int) -> Iterator[Batch]:
    """The batch of these sentences in parts of at most `limit` padded tokens a side, or single sentences.

    They are as few as can be and then as even as can be: a small last part would cost as many calls as a large one.
    """
    longer = np.maximum(split.source.lengths[sentences], split.target.lengths[sentences])
    fewest = len(_parts(longer, limit))
    if fewest > 1:
        limit = 1 + bisect_left(range(1, limit), True, key=lambda lower: len(_parts(longer, lower)) == fewest)
    for part in _parts(longer, limit):
        yield make_batch(split, sentences[part])


def _parts(lengths: NDArray[np.int64], limit: int) -> list[slice]:
    """Cuts of sentences of these lengths, in their order, each as long as it fits into `limit` padded tokens."""
    parts, start = [], 0
    while start < len(lengths):
        widths = np.maximum.accumulate(lengths[start:])
        fits = int(np.searchsorted(widths * np.arange(1, len(widths) + 1), limit, side="right"))
        parts.append(slice(start, start + max(1, fits)))
        start += max(1, fits)
    return parts


def eval_batches(split: Split, tokens: int) -> Iterator[tuple[NDArray[np.int64], Batch]]:
    """Every sentence once, in batches of similar lengths; yields (sentences, batch)."""
    source, target = (_lengths(side) for side in (split.source, split.target))
    longer = np.maximum(source, target)
    order = _by_both_lengths(longer, np.subtract(source, target, dtype=np.float64))
    cuts = np.flatnonzero(np.diff((np.cumsum(longer[order], dtype=np.int64) - 1) // tokens)) + 1
    for sentences in np.split(order, cuts):
        yield sentences, make_batch(split, sentences)


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """(B, longest), padded with 0 at the end."""
    out = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.int64)
    for row, sequence in enumerate(sequences):
        out[row, : len(sequence)] = torch.as_tensor(sequence)
    return out


def _padded(side: Side, sentences: Sequence[int] | NDArray[np.int64], mark: int, ahead: bool) -> Tensor:
    """(B, longest + 1): each sentence with a mark ahead of it or behind it."""
    starts = side.offsets[sentences]
    lengths = side.offsets[np.asarray(sentences) + 1] - starts
    columns = np.arange(int(lengths.max()))
    real = columns < lengths[:, None]  # (B, longest)
    out = np.full((len(lengths), len(columns) + 1), PAD, dtype=np.int64)
    tokens = out[:, 1:] if ahead else out[:, :-1]
    tokens[real] = side.ids[(starts[:, None] + columns)[real]]
    out[np.arange(len(lengths)), 0 if ahead else lengths] = mark
    return torch.from_numpy(out)
