"""Perplexity: per subword token, end marks counted, plain negative log-likelihood, never smoothed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ablate.data.batches import eval_batches
from ablate.data.corpus import Split
from ablate.data.seq2seq import collate
from ablate.model import Transformer
from ablate.training.loss import negative_log_likelihood

EVAL_TOKENS = 4096  # a batch, about; it has no part in the value


def perplexity(model: Transformer, split: Split, device: torch.device) -> float:
    """The perplexity of the split's target tokens given its source."""
    return perplexity_of(nats_per_token(model, split, device))


def per_character(value: float, split: Split, texts: Sequence[str]) -> float:
    """The same likelihood as a perplexity per character of the split's target, the end of a sentence counted as one.

    Unlike one per subword it can be compared over vocabularies.
    """
    characters = sum(len(text) + 1 for text in texts)
    return float(value ** (int(split["target"].lengths.sum()) / characters))


def perplexity_of(nats: float) -> float:
    """The exponential of a mean negative log-likelihood; infinite where that is too large for it."""
    return math.exp(nats) if nats < 700 else math.inf


def nats_per_token(model: Transformer, split: Split, device: torch.device) -> float:
    """The mean negative log-likelihood of the split's target tokens given its source."""
    nats, tokens = 0.0, 0
    model.eval()
    with torch.no_grad():
        for sentences in eval_batches(split, EVAL_TOKENS):
            batch = collate(split, sentences).to(device)
            states = batch.at_targets(model(batch.source, batch.target_in))
            nats += negative_log_likelihood(states, model.output_matrix, batch.targets)
            tokens += batch.tokens
    return nats / tokens
