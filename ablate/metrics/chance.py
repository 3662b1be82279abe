"""Scores by chance: those of a model that has learned the frequencies of tokens, and no more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.metrics.perplexity import nats_to_perplexity

_ITEMS = 256  # whose targets are counted at once
_TOKENS = 200_000  # of the training items: their frequencies are known well enough
_LUCK = 3.0  # standard deviations that a guess may be luckier than its mean

# The target tokens of some items, by their indices.
Targets = Callable[[NDArray[np.int64]], NDArray[np.int64]]


def unigram_perplexity(train: Targets, n_train: int, dev: Targets, n_dev: int) -> float:
    """The perplexity of the target tokens of dev by the frequencies of tokens in training and dev.

    Those of dev count as well, so that every token has a probability: the level is as low as a
    model without any context can reach.

    Args:
        train: of the training items, which are sampled evenly where they are many.
        n_train: number of training items.
        dev: of the dev items.
        n_dev: number of dev items.
    """
    of_dev = _counts(dev, np.arange(n_dev), math.inf)
    order = np.random.default_rng(0).permutation(n_train)
    of_train = _counts(train, order, _TOKENS)
    size = max(len(of_dev), len(of_train))
    of_dev = np.pad(of_dev, (0, size - len(of_dev)))
    counts = of_dev + np.pad(of_train, (0, size - len(of_train)))
    occurs = of_dev > 0
    nats = -np.log(counts[occurs] / counts.sum()) @ of_dev[occurs]
    return nats_to_perplexity(float(nats / of_dev.sum()))


def _counts(targets: Targets, items: NDArray[np.int64], most: float) -> NDArray[np.int64]:
    """How often each token occurs among the targets of items, until there are `most`."""
    counts = np.zeros(1, np.int64)
    for start in range(0, len(items), _ITEMS):
        found = np.bincount(targets(np.sort(items[start : start + _ITEMS])), minlength=len(counts))
        found[: len(counts)] += counts
        counts = found
        if counts.sum() >= most:
            break
    return counts


def accuracy_of_guess(answers: NDArray[np.integer[Any]]) -> float:
    """The highest accuracy of a model that gives one answer to all items: the percentage of the
    most frequent answer, and three standard deviations of luck.

    Args:
        answers: of each item, (n,) or (n, answers of an item).
    """
    _, counts = np.unique(answers, axis=0, return_counts=True)
    return lucky(float(counts.max() / len(answers)), len(answers))


def lucky(share: float, items: int) -> float:
    """The percentage of items that a guess has right with three standard deviations of luck."""
    return 100 * min(1.0, share + _LUCK * math.sqrt(share * (1 - share) / items))
