"""Perplexity, from the negative log-likelihood without label smoothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.kernels.cross_entropy import negative_log_likelihood
from ablate.metrics.evaluation import score_batches
from ablate.model import Transformer
from ablate.stats.metrics import LARGEST_SCORE


def nats_per_token(
    model: Transformer,
    batches: Callable[[int], Iterable[Any]],
    output_terms: Callable[[Transformer, Any], tuple[Tensor, Tensor, Tensor]],
    device: torch.device,
) -> float:
    """Mean negative log-likelihood of the target tokens of all batches, in nats.

    Batches are summed in their order, so the number of ranks does not change the bits.

    Args:
        model: put into eval mode.
        batches: see `score_batches`.
        output_terms: `Task.output_terms` of the task of these batches.
        device: device of the model.
    """
    model.eval()
    cap = model.config.logit_cap

    def score(batch: Any) -> NDArray[np.float64]:
        nats = negative_log_likelihood(*output_terms(model, batch.to(device)), cap)
        return np.array([nats, batch.tokens])

    total = 0.0
    tokens = 0
    for nats, count in score_batches(batches, score, device):
        # Not sum(), whose rounding depends on the version of Python.
        total += float(nats)
        tokens += int(count)
    return total / tokens


def nats_to_perplexity(nats: float) -> float:
    """Exp of a mean negative log-likelihood; infinite above the largest number that is stored."""
    return math.exp(nats) if nats < math.log(LARGEST_SCORE) else math.inf


def per_character(perplexity: float, tokens: int, characters: int) -> float:
    """Convert perplexity per token to perplexity per character of the same text.

    Only perplexity per character can be compared across vocabularies.
    """
    return float(perplexity ** (tokens / characters))
