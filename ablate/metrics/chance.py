"""Scores of a guess by frequencies, as baselines: a model should be better."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.metrics.perplexity import nats_to_perplexity

_CHUNK_ITEMS = 256  # items whose targets are counted at once
_ENOUGH_TOKENS = 200_000  # training tokens that suffice to estimate frequencies
_LUCK = 3.0  # standard deviations above the mean that count as luck

# Indices of items -> their target tokens
Targets = Callable[[NDArray[np.int64]], NDArray[np.int64]]


def unigram_perplexity(train: Targets, n_train: int, dev: Targets, n_dev: int) -> float:
    """Perplexity of the target tokens of dev by a unigram model of training and dev.

    Dev is included, so that all its tokens have a probability. No model without context reaches a
    much lower perplexity.

    Args:
        train: returns targets of training items; many items are sampled.
        n_train: number of training items.
        dev: returns targets of dev items.
        n_dev: number of dev items.
    """
    dev_counts = _count_tokens(dev, np.arange(n_dev), math.inf)
    order = np.random.default_rng(0).permutation(n_train)
    train_counts = _count_tokens(train, order, _ENOUGH_TOKENS)
    size = max(len(dev_counts), len(train_counts))
    dev_counts = np.pad(dev_counts, (0, size - len(dev_counts)))
    counts = dev_counts + np.pad(train_counts, (0, size - len(train_counts)))
    occurs = dev_counts > 0
    nats = -np.log(counts[occurs] / counts.sum()) @ dev_counts[occurs]
    return nats_to_perplexity(float(nats / dev_counts.sum()))


def _count_tokens(targets: Targets, items: NDArray[np.int64], enough: float) -> NDArray[np.int64]:
    """Count each token among the targets of items, until there are `enough` tokens."""
    counts = np.zeros(1, np.int64)
    for start in range(0, len(items), _CHUNK_ITEMS):
        chunk = np.sort(items[start : start + _CHUNK_ITEMS])
        total = np.bincount(targets(chunk), minlength=len(counts))
        total[: len(counts)] += counts
        counts = total
        if counts.sum() >= enough:
            break
    return counts


def guess_accuracy(answers: NDArray[np.integer[Any]]) -> float:
    """Accuracy in percent of a lucky guess: the most frequent answer to all items.

    Args:
        answers: the answer of each item, (n,), or its answers, (n, answers of an item).
    """
    return lucky_accuracy(share_of_most_frequent(answers), len(answers))


def share_of_most_frequent(answers: NDArray[np.integer[Any]]) -> float:
    """Share of the items that have the most frequent answer; argument as `guess_accuracy`."""
    _, counts = np.unique(answers, axis=0, return_counts=True)
    return float(counts.max() / len(answers))


def lucky_accuracy(share: float, items: int) -> float:
    """Percentage of correct items three standard deviations above the mean of a guess.

    Args:
        share: expected share of correct items; the number of correct items is binomial.
        items: number of items.
    """
    return 100 * min(1.0, share + _LUCK * math.sqrt(share * (1 - share) / items))
