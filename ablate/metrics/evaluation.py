"""Evaluate a split in batches, which ranks share, and which are halved if memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ablate.kernels.device import is_out_of_memory, release_cached_memory
from ablate.kernels.ranks import all_items, current_ranks

EVAL_TOKENS = 4096  # tokens in a batch; only the last digits of scores depend on it
FEWEST_EVAL_TOKENS = 64
T = TypeVar("T")


def score_batches(
    batches: Callable[[int], Iterable[T]],
    score: Callable[[T], NDArray[np.float64]],
    device: torch.device,
) -> list[NDArray[np.float64]]:
    """Score all batches without gradients.

    If memory runs out, the evaluation starts over with batches of half the size.

    Args:
        batches: number of tokens in a batch -> all batches of a split.
        score: computes the scores of a batch. A rank calls it for its share of the batches.
        device: device of the model.

    Returns:
        The scores of each batch, in order.
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
            return _gather(scores)
        release_cached_memory(device)  # not in the handler, where the traceback keeps tensors alive
        size //= 2


@torch.no_grad()
def _scores(
    batches: Iterable[T], score: Callable[[T], NDArray[np.float64]]
) -> dict[int, NDArray[np.float64]]:
    """The scores of this rank's batches, by the index of the batch."""
    ranks = current_ranks()
    scores = {}
    for i, batch in enumerate(batches):
        if i % ranks.size == ranks.index:
            scores[i] = score(batch)
    return scores


def _gather(rank_scores: dict[int, NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The scores of the batches of all ranks, in order."""
    if current_ranks().size == 1:  # without lists, which take several times the memory
        return list(rank_scores.values())
    lists = all_items([(i, scores.tolist()) for i, scores in rank_scores.items()])
    return [np.array(scores, dtype=np.float64) for scores in lists]
