"""Batches of generated items: one sequence, or for a model with an encoder two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ablate.data.batches import Batch, pad
from ablate.data.contexts import ContextBatch
from ablate.data.items import DrawnItems


def collate(items: DrawnItems, some: Sequence[int] | NDArray[np.int64]) -> ContextBatch | Batch:
    """Make the padded batch of some items.

    An encoder reads an item up to the place of the first answer; the decoder begins with the token
    there.
    """
    inputs, targets = items.draw(np.asarray(some))
    if not items.has_source:
        is_answer = np.flatnonzero(targets)
        arrays = inputs, targets.ravel()[is_answer], is_answer
        return ContextBatch(*map(torch.from_numpy, arrays))
    sources, before, after = [], [], []
    for read, answers in zip(inputs, targets, strict=True):
        first = int(np.flatnonzero(answers)[0])
        sources.append(read[: first + 1])
        before.append(read[first:])
        after.append(answers[first:])
    target_out = pad(after)
    return Batch(pad(sources), pad(before), target_out, target_out.flatten().nonzero()[:, 0])
