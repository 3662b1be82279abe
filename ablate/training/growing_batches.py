"""Batches that begin small and double (Smith et al., 2018)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.config import TrainingConfig
from ablate.data.batches import BatchOrder, divide
from ablate.data.corpus import Split


class Place(NamedTuple):
    """A step's share of the data: one of `parts` of a whole batch, which has a number from
    1.
    """

    batch: int
    part: int
    parts: int


def place_in_batch(config: TrainingConfig, step: int) -> Place:
    """The part of a whole batch that a step trains on, so that nothing is left out or repeated."""
    before = 0  # whole batches of the stages before
    for begin, end, count in config.batch_stages:
        if step <= end:
            batch, part = divmod(step - 1 - begin, count)
            return Place(before + batch + 1, part, count)
        before += -(-(end - begin) // count)
    return Place(before + step - end, 0, 1)


class GrowingOrder:
    """An order of batches of which the first steps use parts: a pure function of the step, as the
    order itself.
    """

    def __init__(self, order: BatchOrder, split: Split, config: TrainingConfig) -> None:
        self.order, self.split, self.config = order, split, config
        self.seed = order.seed

    @property
    def batches_per_epoch(self) -> int:
        """Whole batches in one pass over the training data."""
        return self.order.batches_per_epoch

    def at(self, step: int) -> NDArray[np.int64]:
        """Indices of the records in the batch of a step, counted from 1."""
        place = place_in_batch(self.config, step)
        records = self.order.at(place.batch)
        # The last batch of an epoch may be too small to be divided: it is then used again.
        parts = [part for part in divide(self.split, records, place.parts) if len(part)]
        return parts[place.part % len(parts)]
