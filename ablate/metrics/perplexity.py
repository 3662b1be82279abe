"""Perplexity from the plain negative log-likelihood, never the smoothed loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ablate.kernels.cross_entropy import negative_log_likelihood
from ablate.kernels.device import is_out_of_memory, release_cached_memory
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

    Args:
        model: put into evaluation mode.
        batches: all batches of a split, of about so many tokens. Where they are too large for the memory, the
            evaluation starts over with smaller ones.
        output_terms: of the same task; see `Task.output_terms`.
        device: of the model.
    """
    model.eval()
    for size in _halved(EVAL_TOKENS):
        try:
            return _nats_per_token(model, batches(size), output_terms, device)
        except (RuntimeError, MemoryError) as error:
            if size <= FEWEST_EVAL_TOKENS or not is_out_of_memory(error):
                raise
        release_cached_memory(device)  # outside of the handler, whose traceback keeps tensors alive
    raise AssertionError("the smallest size returns or raises")


@torch.no_grad()
def _nats_per_token(
    model: Transformer,
    batches: Iterable[Any],
    output_terms: Callable[[Transformer, Any], tuple[Tensor, Tensor, Tensor]],
    device: torch.device,
) -> float:
    nats, tokens = 0.0, 0
    for batch in batches:
        nats += negative_log_likelihood(*output_terms(model, batch.to(device)))
        tokens += batch.tokens
    return nats / tokens


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
