"""The batch of each step and its micro-batches.

They depend only on the step and on the micro-batch size. Batches may begin small and double (Smith
et al., 2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ablate.data.batches import BatchOrder, divide, micro_batches
from ablate.data.corpus import Split
from ablate.tasks import Batch, Task


@dataclass(frozen=True)
class BatchFraction:
    """The data of a step while batches grow: one of `count` fractions of a full batch.

    batch: number of the full batch, from 1.
    index: index of the fraction in it, from 0.
    """

    batch: int
    index: int
    count: int


def batch_fraction(stages: Sequence[tuple[int, int, int]], step: int) -> BatchFraction:
    """The fraction of a full batch that a step trains on.

    Consecutive steps take consecutive fractions, so that no record is skipped or repeated.

    Args:
        stages: `TrainingConfig.batch_stages`; empty if every step has a full batch.
        step: counted from 1.
    """
    full_batches = 0  # used up in earlier stages
    end = 0
    for begin, end, count in stages:
        if step <= end:
            batch, index = divmod(step - 1 - begin, count)
            return BatchFraction(full_batches + batch + 1, index, count)
        full_batches += -(-(end - begin) // count)
    return BatchFraction(full_batches + step - end, 0, 1)


@dataclass(frozen=True)
class BatchPart:
    """One of the parts into which a batch is divided between processes.

    index: index of the part in the batch.
    micro_batches: can be iterated over once.
    """

    index: int
    micro_batches: Iterable[Batch]


@dataclass(frozen=True)
class StepBatch:
    """The batch of a step.

    items: indices of its records.
    n_tokens: number of target tokens.
    parts: the parts for this process.
    """

    items: NDArray[np.int64]
    n_tokens: int
    parts: Sequence[BatchPart]


@dataclass(frozen=True)
class StepBatches:
    """Makes the batch of each step.

    order: order of the full batches.
    parts: number of parts into which the batch of a step is divided.
    local_parts: indices of the parts for this process.
    stages: `TrainingConfig.batch_stages`; empty if every step has a full batch.
    """

    task: Task
    split: Split
    order: BatchOrder
    parts: int = 1
    local_parts: range = range(1)
    stages: Sequence[tuple[int, int, int]] = ()

    def items(self, step: int) -> NDArray[np.int64]:
        """Indices of the records in the batch of a step, counted from 1."""
        fraction = batch_fraction(self.stages, step)
        records = self.order.at(fraction.batch)
        # The last batch of an epoch may have fewer records than fractions, which are then repeated.
        fractions = [items for items in divide(self.split, records, fraction.count) if len(items)]
        return fractions[fraction.index % len(fractions)]

    def at(self, step: int, limit: int) -> StepBatch:
        """The batch of a step, with micro-batches of at most `limit` padded tokens."""
        items = self.items(step)
        split = self.task.at_step(self.split, self.order.seed, step)
        parts = divide(self.split, items, self.parts)
        local_parts = []
        for index in self.local_parts:
            batches = self._micro_batches(split, parts[index], limit)
            local_parts.append(BatchPart(index, batches))
        return StepBatch(items, self.task.n_targets(split, items), local_parts)

    def _micro_batches(self, split: Split, items: NDArray[np.int64], limit: int) -> Iterator[Batch]:
        if len(items) == 0:
            return
        # By the lengths in `self.split`, which are computed once; the step's split has the same.
        for indices in micro_batches(self.split, items, limit):
            yield self.task.collate(split, indices)
