"""Evaluation of a split in batches: ranks share them, and memory may make them smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ablate.kernels.device import is_out_of_memory, release_cached_memory
from ablate.kernels.ranks import all_items, current_ranks

EVAL_TOKENS = 4096  # per batch; scores depend on it in their last digits only
FEWEST_EVAL_TOKENS = 64
T = TypeVar("T")


def score_batches(
    batches: Callable[[int], Iterable[T]],
    score: Callable[[T], NDArray[np.float64]],
    device: torch.device,
) -> list[NDArray[np.float64]]:
    """Score all batches, without gradients; the scores of each, in order.

    Args:
        batches: all batches of a split, of about so many tokens. Where they are too large for the
            memory, the evaluation starts over with smaller ones.
        score: scores of a batch. Several ranks call it for different batches.
        device: of the model.
    """
    size = EVAL_TOKENS
    while True:
        scores = None
        try:
            scores = _scores(batches(size), score)
        except (RuntimeError, MemoryError) as error:
            if size <= FEWEST_EVAL_TOKENS or not is_out_of_memory(error):
                raise
        if not any(current_ranks().vote([scores is None])):
            assert scores is not None
            return _of_all_ranks(scores)
        release_cached_memory(device)  # outside of the handler, whose traceback keeps tensors alive
        size //= 2


@torch.no_grad()
def _scores(
    batches: Iterable[T], score: Callable[[T], NDArray[np.float64]]
) -> dict[int, NDArray[np.float64]]:
    """The scores of this rank's batches, by the number of the batch."""
    ranks = current_ranks()
    scores = {}
    for number, batch in enumerate(batches):
        if number % ranks.size == ranks.index:
            scores[number] = score(batch)
    return scores


def _of_all_ranks(own: dict[int, NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The scores of all batches, in order."""
    if current_ranks().size == 1:  # lists would take several times the memory
        return list(own.values())
    lists = all_items([(number, scores.tolist()) for number, scores in own.items()])
    return [np.array(scores, dtype=np.float64) for scores in lists]
