"""The batch of each step, and its micro-batches.

Both depend only on the step and on the size of micro-batches. The batch size may begin small and
double during training (Smith et al., 2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ablate.data.batches import BatchOrder, divide, micro_batches
from ablate.data.corpus import Split
from ablate.tasks import Batch, Task


@dataclass(frozen=True)
class BatchFraction:
    """The data of a step: one of several equal fractions of a full batch.

    batch: number of the full batch, counted from 1.
    index: index of the fraction in the full batch, counted from 0.
    count: number of fractions into which the full batch is divided.
    """

    batch: int
    index: int
    count: int


def batch_fraction(stages: Sequence[tuple[int, int, int]], step: int) -> BatchFraction:
    """The fraction of a full batch that a step trains on.

    Consecutive steps take consecutive fractions, so that no record is skipped or repeated.

    Args:
        stages: `TrainingConfig.batch_stages`: first step minus 1, last step, and number of
            fractions of a full batch; empty if every step has a full batch.
        step: number of the step, counted from 1.
    """
    full_batches = 0  # number of full batches that earlier stages have used
    end = 0
    for begin, end, count in stages:
        if step <= end:
            batch, index = divmod(step - 1 - begin, count)
            return BatchFraction(full_batches + batch + 1, index, count)
        full_batches += math.ceil((end - begin) / count)
    return BatchFraction(full_batches + step - end, 0, 1)


@dataclass(frozen=True)
class BatchPart:
    """One of the parts into which a batch is divided, to be shared by several processes.

    index: index of the part in the batch.
    micro_batches: micro-batches of the part; can be iterated over only once.
    """

    index: int
    micro_batches: Iterable[Batch]


@dataclass(frozen=True)
class StepBatch:
    """The batch of a step.

    items: indices of the records in the batch.
    n_tokens: number of target tokens of the whole batch.
    parts: the parts that this process computes.
    """

    items: NDArray[np.int64]
    n_tokens: int
    parts: Sequence[BatchPart]


@dataclass(frozen=True)
class StepBatches:
    """Makes the batch of each step.

    task: task that collates batches.
    split: the training items.
    order: order of the full batches.
    parts: number of parts into which the batch of a step is divided.
    local_parts: indices of the parts that this process computes.
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
        # The last batch of an epoch may have fewer records than fractions: records are then
        # repeated.
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
        # By the lengths of `self.split`, which are computed only once. The split of the step has
        # the same lengths.
        for indices in micro_batches(self.split, items, limit):
            yield self.task.collate(split, indices)
