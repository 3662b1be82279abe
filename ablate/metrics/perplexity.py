"""Perplexity from the plain negative log-likelihood, never the smoothed loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ablate.kernels.cross_entropy import negative_log_likelihood
from ablate.model import Transformer

EVAL_TOKENS = 4096  # per batch; the value does not depend on it


def nats_per_token(
    model: Transformer,
    batches: Iterable[Any],
    output_terms: Callable[[Transformer, Any], tuple[Tensor, Tensor, Tensor]],
    device: torch.device,
) -> float:
    """Mean negative log-likelihood of the target tokens of all batches, in nats.

    Args:
        model: put into evaluation mode.
        batches: of a task.
        output_terms: of the same task; see `Task.output_terms`.
        device: of the model.
    """
    nats, tokens = 0.0, 0
    model.eval()
    with torch.no_grad():
        for batch in batches:
            nats += negative_log_likelihood(*output_terms(model, batch.to(device)))
            tokens += batch.tokens
    return nats / tokens


def perplexity_of(nats: float) -> float:
    """Exp of a mean negative log-likelihood in nats; infinite if it does not fit a float."""
    return math.exp(nats) if nats < 700 else math.inf


def per_character(perplexity: float, tokens: int, characters: int) -> float:
    """Convert a perplexity per token to one per character, for the same likelihood of the same text.

    Unlike perplexity per subword token, it can be compared across vocabularies.
    """
    return float(perplexity ** (tokens / characters))
