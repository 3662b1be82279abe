"""Contexts of a language model: a stream of tokens cut into windows, and their batches.

A context predicts each of its tokens from those before it in the context, and from the one before
the context. At the beginning of the stream, and of a document that begins a context, that is the
begin mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.batches import AtTargets
from ablate.data.corpus import TokenSequences
from ablate.data.tokenizer import BOS, PAD


@dataclass(frozen=True)
class Contexts(TokenSequences):
    """Contexts over a stream of token ids; `offsets` are those of the documents.

    starts, ends: the first token of each context, and the one after its last.
    scored: the first token that counts; those before it only predict, because an earlier context
        has scored them.
    begins: whether a begin mark is before the context, rather than the token before it.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    scored: NDArray[np.int64]
    begins: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> NDArray[np.uint32]:
        return self.ids[self.starts[index] : self.ends[index]]

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each context."""
        return (self.ends - self.starts).astype(np.int32)

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        """Tokens of each context that count."""
        return self.ends - self.scored

    def first(self, count: int) -> Self:
        """The first contexts."""
        starts = self.starts[:count]
        ends = self.ends[:count]
        scored = self.scored[:count]
        return replace(self, starts=starts, ends=ends, scored=scored, begins=self.begins[:count])

    def counts(self, items: Sequence[int] | NDArray[np.int64]) -> int:
        """Number of tokens of some contexts that count."""
        return int(self.targets[np.asarray(items)].sum())

    def places(self, items: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The place in the stream of each token of some contexts, and whether it is a token rather
        than padding, whose place is that of the first one; (B, T) each.
        """
        starts = self.starts[items][:, None]
        lengths = self.ends[items][:, None] - starts
        columns = np.arange(int(lengths.max()))
        is_token = columns < lengths
        return np.where(is_token, starts + columns, starts), is_token

    def collate(self, items: Sequence[int] | NDArray[np.int64]) -> ContextBatch:
        """Make the padded batch of some contexts."""
        items = np.asarray(items)
        places, is_token = self.places(items)  # of the targets
        inputs = np.full(is_token.shape, PAD, dtype=np.int64)
        inputs[is_token] = self.ids[np.maximum(places[is_token] - 1, 0)]
        inputs[self.begins[items], 0] = BOS
        counts = is_token & (places >= self.scored[items][:, None])
        return ContextBatch.of(inputs, self.ids[places[counts]], counts, places[counts])


@dataclass(frozen=True)
class ContextBatch(AtTargets):
    """Padded token ids of contexts, and the positions of the tokens that count.

    inputs: (B, T), each the token before the context and all of its tokens but the last, padded
        with 0.
    targets: the n tokens that count.
    positions: (n), their indices into the inputs flattened to (B * T): the state there predicts the
        token.
    places: (n), their indices into the stream; of generated items, those of the items.
    """

    inputs: Tensor
    targets: Tensor
    positions: Tensor
    places: NDArray[np.int64]

    @staticmethod
    def of(
        inputs: NDArray[np.int64],
        targets: NDArray[np.integer[Any]],
        counts: NDArray[np.bool_],
        places: NDArray[np.int64],
    ) -> ContextBatch:
        """The batch of arrays; `counts` (B, T) says which inputs predict a token that counts."""
        return ContextBatch(
            torch.from_numpy(inputs),
            torch.from_numpy(targets.astype(np.int64)),
            torch.from_numpy(np.flatnonzero(counts)),
            places,
        )

    def ahead(self, distance: int) -> Tensor:
        """The token so many after the one that each input predicts, 0 beyond the context: (B, T).

        Of batches in which all tokens count.
        """
        following = F.pad(self.inputs[:, 1:], (0, 1)).flatten()
        following = following.index_copy(0, self.positions, self.targets).view_as(self.inputs)
        return F.pad(following, (0, distance))[:, distance:]


def cut(
    sequences: TokenSequences, context: int, stride: int, joined: bool, score_once: bool
) -> Contexts:
    """Cut a stream into contexts. The last one of a stretch may be shorter; none is dropped.

    Args:
        sequences: the documents.
        context: tokens of a context.
        stride: tokens between the beginnings of two contexts.
        joined: whether contexts run over the ends of documents; otherwise each document begins one.
        score_once: count each token in the first context that has it, as evaluations do.
    """
    ends = sequences.offsets[1:].astype(np.int64)
    begins = sequences.offsets[:-1].astype(np.int64)
    if joined:
        begins = begins[:1]
        ends = ends[-1:]
    lengths = ends - begins
    counts = 1 + np.maximum(0, -(-(lengths - context) // stride))  # of each stretch
    stretch = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts  # contexts of the stretches before
    index = np.arange(len(stretch)) - np.repeat(before, counts)  # of a context in its stretch
    starts = begins[stretch] + stride * index
    stops = np.minimum(starts + context, ends[stretch])
    # What earlier contexts reach ends at the start of the one before, plus a context.
    scored = np.where(index > 0, starts - stride + context, starts) if score_once else starts
    return Contexts(sequences.ids, sequences.offsets, starts, stops, scored, index == 0)
