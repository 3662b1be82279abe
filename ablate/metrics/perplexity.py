"""Perplexity from the plain negative log-likelihood, never the smoothed loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ablate.kernels.cross_entropy import negative_log_likelihood
from ablate.kernels.device import is_out_of_memory, release_cached_memory
from ablate.kernels.ranks import current_ranks
from ablate.model import Transformer

EVAL_TOKENS = 4096  # per batch; the value depends on it in its last digits only
FEWEST_EVAL_TOKENS = 64


def nats_per_token(
    model: Transformer,
    batches: Callable[[int], Iterable[Any]],
    output_terms: Callable[[Transformer, Any], tuple[Tensor, Tensor, Tensor]],
    device: torch.device,
) -> float:
    """Mean negative log-likelihood of the target tokens of all batches, in nats.

    Several ranks share the batches. The sum is in the order of the batches, so their number does not change it.

    Args:
        model: put into evaluation mode.
        batches: all batches of a split, of about so many tokens. Where they are too large for the memory, the
            evaluation starts over with smaller ones.
        output_terms: of the same task; see `Task.output_terms`.
        device: of the model.
    """
    model.eval()
    for size in _halved(EVAL_TOKENS):
        found = None
        try:
            found = _terms(model, batches(size), output_terms, device)
        except (RuntimeError, MemoryError) as error:
            if size <= FEWEST_EVAL_TOKENS or not is_out_of_memory(error):
                raise
        of_ranks = current_ranks().all_gather_objects(found)
        if None not in of_ranks:  # no rank ran out of memory
            return _mean(sorted(tuple(term) for terms in of_ranks for term in terms))
        release_cached_memory(device)  # outside of the handler, whose traceback keeps tensors alive
    raise AssertionError("the smallest size returns or raises")


@torch.no_grad()
def _terms(
    model: Transformer,
    batches: Iterable[Any],
    output_terms: Callable[[Transformer, Any], tuple[Tensor, Tensor, Tensor]],
    device: torch.device,
) -> list[tuple[int, float, int]]:
    """(number of the batch, nats, tokens) of the batches of this rank."""
    ranks = current_ranks()
    return [
        (number, negative_log_likelihood(*output_terms(model, batch.to(device))), batch.tokens)
        for number, batch in enumerate(batches)
        if number % ranks.size == ranks.index
    ]


def _mean(terms: Sequence[tuple[int, float, int]]) -> float:
    total, tokens = 0.0, 0
    for _, nats, count in terms:  # not sum(), whose rounding depends on the version of Python
        total += nats
        tokens += count
    return total / tokens


def _halved(size: int) -> Iterator[int]:
    yield size
    while size > FEWEST_EVAL_TOKENS:
        size //= 2
        yield size


def perplexity_of(nats: float) -> float:
    """Exp of a mean negative log-likelihood in nats; infinite if it does not fit a float."""
    return math.exp(nats) if nats < 700 else math.inf


def per_character(perplexity: float, tokens: int, characters: int) -> float:
    """Convert a perplexity per token to one per character, for the same likelihood of the same text.

    Unlike perplexity per subword token, it can be compared across vocabularies.
    """
    return float(perplexity ** (tokens / characters))
