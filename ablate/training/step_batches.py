"""The micro-batches of each step: a function of the step and the size of micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ablate.data.batches import BatchOrder, divide, micro_batches
from ablate.data.corpus import Split
from ablate.tasks import Batch, Task
from ablate.training.growing_batches import GrowingOrder


@dataclass(frozen=True)
class BatchPart:
    """A part of a batch, which one process works on: its index in the batch, and micro-batches to
    go through once.
    """

    index: int
    micro_batches: Iterable[Batch]


@dataclass(frozen=True)
class StepBatch:
    """The batch of a step.

    items: indices of its records.
    n_tokens: target tokens in it.
    parts: those of this process.
    """

    items: NDArray[np.int64]
    n_tokens: int
    parts: Sequence[BatchPart]


@dataclass(frozen=True)
class StepBatches:
    """Makes the batch of each step.

    parts: into which each batch is divided; those in `mine` are made.
    """

    task: Task
    split: Split
    order: BatchOrder | GrowingOrder
    parts: int = 1
    mine: range = range(1)

    def at(self, step: int, limit: int) -> StepBatch:
        """The batch of a step, counted from 1, with micro-batches of at most `limit` padded
        tokens.
        """
        items, split = self.order.at(step), self.task.at_step(self.split, self.order.seed, step)
        parts = divide(self.split, items, self.parts)
        mine = [
            BatchPart(index, self._micro_batches(split, parts[index], limit)) for index in self.mine
        ]
        return StepBatch(items, self.task.n_targets(split, items), mine)

    def _micro_batches(self, split: Split, items: NDArray[np.int64], limit: int) -> Iterator[Batch]:
        # Lengths are those of the split of all steps, which keeps them.
        for some in micro_batches(self.split, items, limit) if len(items) else ():
            yield self.task.collate(split, some)
