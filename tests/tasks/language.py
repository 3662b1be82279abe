"""A small language model, and the plain loop that its scores are compared with."""

from __future__ import annotations

import torch

from ablate.config.resolve import resolve_row
from ablate.data.tokenizer import BOS
from ablate.model import build
from ablate.tasks import LanguageModel
from tests.model.small import drawn

SIZES = {
    "n_layers": 2, "d_model": 24, "d_ff": 36, "n_heads": 3, "dropout": 0.0, "norm_position": "pre", "context": 16,
    "batch_tokens": 256, "max_positions": 64,
}  # fmt: skip


def small(vocab_size=260, **fields):
    """(row, untrained model in evaluation mode) of a small language model in which every parameter
    has an effect.
    """
    config = resolve_row({**LanguageModel.defaults, **SIZES, **fields})
    return config, drawn(build(config, vocab_size, seed=1)).requires_grad_(False).eval()


def plain_nats(model, tokens, context):
    """Nats of each token, by one forward pass for each: from at most `context` tokens, the begin
    mark included.
    """
    nats, sequence = [], [BOS, *tokens]
    with torch.no_grad():
        for i, token in enumerate(tokens, 1):
            states = model.read(torch.tensor([sequence[max(0, i - context) : i]]))
            nats.append(-float(model.logits(states)[0, -1].double().log_softmax(-1)[token]))
    return nats


def scarce(task, most):
    """`task.output_terms` where memory holds `most` tokens of a batch, and the sizes of the batches
    that it met.
    """
    terms, sizes = task.output_terms, []

    def output_terms(model, batch):
        sizes.append(batch.inputs.numel())
        if batch.inputs.numel() > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return terms(model, batch)

    return output_terms, sizes
