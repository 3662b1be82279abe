"""Contexts of a language model: windows of a stream of tokens, and their batches.

A token is predicted from the earlier tokens of its context and from the token before the context.
At the beginning of the stream, and of a document that begins a context, the begin mark replaces the
token before the context.
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

from ablate.data.batches import SequenceBatch
from ablate.data.corpus import TokenSequences
from ablate.data.tokenizer import BOS, EOS, PAD


@dataclass(frozen=True)
class Contexts(TokenSequences):
    """Contexts over a stream of token ids.

    ids: the stream.
    offsets: offsets of the documents in the stream.
    starts, ends: index of the first token of each context, and of the token after its last.
    scored: index of the first target token of each context. Earlier tokens of the context are only
        read, because an earlier context has scored them.
    begins: whether the begin mark precedes each context; otherwise the previous token of the stream
        precedes it.
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
        """Number of tokens of each context."""
        return (self.ends - self.starts).astype(np.int32)

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        """Number of target tokens of each context."""
        return self.ends - self.scored

    def first(self, count: int) -> Self:
        """The first contexts."""
        starts = self.starts[:count]
        ends = self.ends[:count]
        scored = self.scored[:count]
        return replace(self, starts=starts, ends=ends, scored=scored, begins=self.begins[:count])

    def count_targets(self, items: Sequence[int] | NDArray[np.int64]) -> int:
        """Number of target tokens of some contexts."""
        return int(self.targets[np.asarray(items)].sum())

    def token_indices(
        self, items: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Indices into the stream for a padded batch of contexts.

        Returns:
            (index of each token, and of the first token at padding; whether each is a token and
            not padding), both (B, T).
        """
        starts = self.starts[items][:, None]
        lengths = self.ends[items][:, None] - starts
        columns = np.arange(int(lengths.max()))
        is_token = columns < lengths
        return np.where(is_token, starts + columns, starts), is_token

    def split_documents(self) -> Contexts:
        """Divide the contexts at the ends of documents, as models with `document_masks` do. The end
        mark of a document precedes the next document.
        """
        document_starts = np.flatnonzero(self.ids == EOS) + 1
        starts: list[int] = []
        ends: list[int] = []
        origins: list[int] = []  # index of the context of each part
        for context, (start, end) in enumerate(zip(self.starts, self.ends, strict=True)):
            first, last = np.searchsorted(document_starts, (start + 1, end))
            inside = document_starts[first:last].tolist()
            starts += [start, *inside]
            ends += [*inside, end]
            origins += [context] * (len(inside) + 1)
        return replace(
            self,
            starts=np.array(starts),
            ends=np.array(ends),
            scored=np.clip(self.scored[origins], starts, ends),
            begins=self.begins[origins] & (self.starts[origins] == starts),
        )

    def collate(self, items: Sequence[int] | NDArray[np.int64]) -> ContextBatch:
        """Make the padded batch of some contexts."""
        items = np.asarray(items)
        indices, is_token = self.token_indices(items)
        inputs = np.full(is_token.shape, PAD, dtype=np.int64)
        inputs[is_token] = self.ids[np.maximum(indices[is_token] - 1, 0)]
        inputs[self.begins[items], 0] = BOS
        is_target = is_token & (indices >= self.scored[items][:, None])
        targets = self.ids[indices[is_target]]
        return ContextBatch.from_arrays(inputs, targets, is_target, indices[is_target])


@dataclass(frozen=True)
class ContextBatch(SequenceBatch):
    """A padded batch of contexts.

    inputs: (B, T), the token before the context, then all tokens of the context but the last;
        padded with 0.
    targets: the n target tokens.
    positions: (n,), index of the input that predicts each target, in the flattened (B, T).
    indices: (n,), index of each target in the stream; of a generated item, index of the item.
    """

    inputs: Tensor
    targets: Tensor
    positions: Tensor
    indices: NDArray[np.int64]

    @staticmethod
    def from_arrays(
        inputs: NDArray[np.int64],
        targets: NDArray[np.integer[Any]],
        is_target: NDArray[np.bool_],
        indices: NDArray[np.int64],
    ) -> ContextBatch:
        """Make a batch of arrays; `is_target` (B, T) says which inputs predict a target."""
        return ContextBatch(
            torch.from_numpy(inputs),
            torch.from_numpy(targets.astype(np.int64)),
            torch.from_numpy(np.flatnonzero(is_target)),
            indices,
        )

    def future_tokens(self, distance: int) -> Tensor:
        """(B, T): for each input, the token that follows its target by `distance` tokens; 0 after
        the end of the context. All tokens of the batch must be targets.
        """
        next_tokens = F.pad(self.inputs[:, 1:], (0, 1)).flatten()
        next_tokens = next_tokens.index_copy(0, self.positions, self.targets).view_as(self.inputs)
        return F.pad(next_tokens, (0, distance))[:, distance:]


def cut(
    sequences: TokenSequences, context: int, stride: int, joined: bool, score_once: bool
) -> Contexts:
    """Cut a stream into contexts.

    The last context of a document, or of the stream, can be shorter. No token is dropped.

    Args:
        sequences: the documents.
        context: number of tokens of a context.
        stride: number of tokens between the beginnings of consecutive contexts.
        joined: whether contexts run over the ends of documents; otherwise each document begins a
            context.
        score_once: whether a token is a target only in the first context that has it, as in
            evaluations.
    """
    ends = sequences.offsets[1:].astype(np.int64)
    begins = sequences.offsets[:-1].astype(np.int64)
    if joined:  # a single segment
        begins = begins[:1]
        ends = ends[-1:]
    lengths = ends - begins
    counts = 1 + np.maximum(0, -(-(lengths - context) // stride))  # contexts of each segment
    segment = np.repeat(np.arange(len(counts)), counts)  # segment of each context
    first_contexts = np.cumsum(counts) - counts  # of each segment
    # Index of each context in its segment
    index = np.arange(len(segment)) - np.repeat(first_contexts, counts)
    starts = begins[segment] + stride * index
    stops = np.minimum(starts + context, ends[segment])
    scored = starts
    if score_once:  # score only tokens after the end of the previous context
        scored = np.where(index > 0, starts - stride + context, starts)
    return Contexts(sequences.ids, sequences.offsets, starts, stops, scored, index == 0)
