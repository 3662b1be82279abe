"""The micro-batches of each step: a function of the step and the size of micro-batches.

Batches may begin small and double (Smith et al., 2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.data.batches import BatchOrder, divide, micro_batches
from ablate.data.corpus import Split
from ablate.tasks import Batch, Task


class Place(NamedTuple):
    """A step's share of the data: one of `parts` of a whole batch, which has a number from 1."""

    batch: int
    part: int
    parts: int


def place_in_batch(stages: Sequence[tuple[int, int, int]], step: int) -> Place:
    """The part of a whole batch that a step trains on, so that nothing is left out or repeated.

    `stages` are those of `TrainingConfig.batch_stages`.
    """
    before = end = 0  # whole batches of the stages before, and their last step
    for begin, end, count in stages:
        if step <= end:
            batch, part = divmod(step - 1 - begin, count)
            return Place(before + batch + 1, part, count)
        before += -(-(end - begin) // count)
    return Place(before + step - end, 0, 1)


@dataclass(frozen=True)
class BatchPart:
    """A part of a batch for one process: its index there, and micro-batches to go through once."""

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

    order: of whole batches.
    parts: into which the batch of a step is divided; those in `mine` are made.
    stages: of batches that grow; empty where every step has a whole batch.
    """

    task: Task
    split: Split
    order: BatchOrder
    parts: int = 1
    mine: range = range(1)
    stages: Sequence[tuple[int, int, int]] = ()

    def items(self, step: int) -> NDArray[np.int64]:
        """Indices of the records in the batch of a step, counted from 1."""
        place = place_in_batch(self.stages, step)
        records = self.order.at(place.batch)
        # The last batch of an epoch may be too small to be divided: it is then used again.
        parts = [part for part in divide(self.split, records, place.parts) if len(part)]
        return parts[place.part % len(parts)]

    def at(self, step: int, limit: int) -> StepBatch:
        """The batch of a step, with micro-batches of at most `limit` padded tokens."""
        items = self.items(step)
        split = self.task.at_step(self.split, self.order.seed, step)
        parts = divide(self.split, items, self.parts)
        mine = []
        for index in self.mine:
            mine.append(BatchPart(index, self._micro_batches(split, parts[index], limit)))
        return StepBatch(items, self.task.n_targets(split, items), mine)

    def _micro_batches(self, split: Split, items: NDArray[np.int64], limit: int) -> Iterator[Batch]:
        # Lengths are those of the split of all steps, which keeps them.
        for some in micro_batches(self.split, items, limit) if len(items) else ():
            yield self.task.collate(split, some)
