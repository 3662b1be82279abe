"""What a head's weights come to, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.analysis.weights import Weights

PAIRS = 3  # the strongest ones that are told of a head


@dataclass(frozen=True)
class Measures:
    """Means over the queries of one head; None where a measure has no meaning.

    head: counted from 1.
    entropy: of the weights, in nats: 0 where all is on one key, ln S where all S keys weigh alike.
    distance: places between query and key, weighed; of self-attention, as the three that follow.
    itself, previous, next: weight on the query's own place, on the one before, on the one after.
    marks: weight on begin and end marks.
    strongest: (query, key, weight), the largest weights, of queries that have more than one key to choose from.
    """

    head: int
    entropy: float
    distance: float | None
    itself: float | None
    previous: float | None
    next: float | None
    marks: float
    strongest: tuple[tuple[int, int, float], ...]


def measures(weights: Weights) -> list[Measures]:
    """The measures of each head of an attention."""
    return [_of_head(number, head, weights) for number, head in enumerate(weights.heads.double(), 1)]


def _of_head(number: int, head: Tensor, weights: Weights) -> Measures:
    entropy = float(torch.special.entr(head).sum(1).mean())
    marks = float(head[:, list(weights.marks)].sum(1).mean())
    distance = itself = previous = after = None
    if weights.over_itself:
        order = torch.arange(len(head))
        distance = float((head * (order[:, None] - order).abs()).sum(1).mean())
        itself, previous = _mean(head.diagonal()), _mean(head.diagonal(-1))
        after = _mean(head.diagonal(1)) if weights.kind == "encoder" else None  # a decoder never looks ahead
    strongest = _strongest(head, weights.kind == "decoder")
    return Measures(number, entropy, distance, itself, previous, after, marks, strongest)


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None


def _strongest(head: Tensor, causal: bool) -> tuple[tuple[int, int, float], ...]:
    first = 1 if causal else 0  # the first query of a causal head has but one key
    choices = head[first:].flatten()
    values, places = choices.sort(descending=True, stable=True)
    found = zip(values[:PAIRS].tolist(), places[:PAIRS].tolist(), strict=True)
    return tuple((first + place // head.shape[1], place % head.shape[1], value) for value, place in found)
