"""The micro-batches of each step; for a GPU they are made and pinned in a thread, while the step
before is computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.batches import BatchOrder, divide, micro_batches
from ablate.data.corpus import Split
from ablate.kernels.device import on_gpu, prepare_thread
from ablate.tasks import Batch, Task
from ablate.training.growing_batches import GrowingOrder

B = TypeVar("B", bound=Batch)


@dataclass(frozen=True)
class Part:
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
    parts: Sequence[Part]


class StepBatches:
    """Makes the batch of each step: a function of the step and the size of micro-batches.

    For a GPU, the batch of the next step is made ahead in pinned memory, from which a copy does not
    stop the host. All batches then come from one thread, because an order keeps the epoch that it
    was last asked for.
    """

    def __init__(
        self,
        task: Task,
        split: Split,
        order: BatchOrder | GrowingOrder,
        device: torch.device,
        parts: int = 1,
        mine: range = range(1),
    ) -> None:
        """Prepare to make batches on a device, each of `parts` parts, of which those in `mine` are
        made.
        """
        self.task, self.split, self.order, self.parts, self.mine = task, split, order, parts, mine
        self._ahead: tuple[tuple[int, int], Future[StepBatch]] | None = None
        self._thread = None
        if on_gpu(device):
            self._thread = ThreadPoolExecutor(
                1, "batches", initializer=prepare_thread, initargs=(device,)
            )

    def at(self, step: int, limit: int, has_next: bool = True) -> StepBatch:
        """The batch of a step.

        Args:
            step: counted from 1.
            limit: padded tokens of a micro-batch.
            has_next: whether another step follows, with micro-batches of the same size.
        """
        if self._thread is None:
            return self._make(step, limit)
        future = (
            self._ahead[1]
            if self._ahead and self._ahead[0] == (step, limit)
            else self._submit(step, limit)
        )
        found = future.result()
        # After the result: the thread then makes the next batch while this one is computed. A batch
        # made for another limit, after running out of memory, is discarded by the key.
        self._ahead = ((step + 1, limit), self._submit(step + 1, limit)) if has_next else None
        return found

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def _submit(self, step: int, limit: int) -> Future[StepBatch]:
        assert self._thread is not None
        return self._thread.submit(self._make_pinned, step, limit)

    def _make(self, step: int, limit: int) -> StepBatch:
        items, split = self.order.at(step), self.task.at_step(self.split, self.order.seed, step)
        parts = divide(self.split, items, self.parts)
        mine = [Part(index, self._micro_batches(split, parts[index], limit)) for index in self.mine]
        return StepBatch(items, self.task.n_targets(split, items), mine)

    def _micro_batches(self, split: Split, items: NDArray[np.int64], limit: int) -> Iterator[Batch]:
        # Lengths are those of the split of all steps, which keeps them.
        for some in micro_batches(self.split, items, limit) if len(items) else ():
            yield self.task.collate(split, some)

    def _make_pinned(self, step: int, limit: int) -> StepBatch:
        made = self._make(step, limit)
        parts = [
            Part(part.index, [pinned(batch) for batch in part.micro_batches]) for part in made.parts
        ]
        return dataclasses.replace(made, parts=parts)


def pinned(batch: B) -> B:
    """The batch with its tensors in pinned memory, if it is a dataclass; else as it is."""
    if not dataclasses.is_dataclass(batch):
        return batch
    values = {
        field.name: getattr(batch, field.name) for field in dataclasses.fields(batch) if field.init
    }
    tensors = {
        name: value.pin_memory() for name, value in values.items() if isinstance(value, Tensor)
    }
    return dataclasses.replace(batch, **tensors)
