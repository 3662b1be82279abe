"""A small masked language model."""

from __future__ import annotations

from ablate.config.resolve import resolve_row
from ablate.model import build
from ablate.tasks import MaskedLanguageModel
from tests.model.small import drawn

SIZES = {
    "n_layers": 2, "d_model": 24, "d_ff": 36, "n_heads": 3, "dropout": 0.0, "context": 16, "batch_tokens": 256,
    "max_positions": 64,
}  # fmt: skip
BERT = {
    "architecture": "encoder-only", **SIZES, "positional_encoding": "learned", "activation": "gelu",
    "attention_bias": True, "embedding_scale": 1, "embedding_norm": True, "output_transform": True, "output_bias": True,
}  # fmt: skip


def small(vocab_size=260, **fields):
    """(row, untrained model in evaluation mode) of a small model in which every parameter has an
    effect.
    """
    config = resolve_row({**MaskedLanguageModel.defaults, **SIZES, **fields})
    return config, drawn(build(config, vocab_size, seed=1)).requires_grad_(False).eval()
