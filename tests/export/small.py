"""Small models with random weights, and the study whose runs are exported."""

from __future__ import annotations

import torch

from ablate.config import DecodingConfig
from ablate.config.resolve import resolve_row
from ablate.data.tokenizer import EOS
from ablate.decoding import translate_ids
from ablate.export.target import TrainedModel
from ablate.model import build
from tests.model.small import drawn

# Trained long enough to predict end marks: libraries have different length limits for endless
# translations.
STUDY = """\
study: exported
data: {corpus: toy, vocab_size: 200, max_length: 64}
base:
  N: 1
  decoder_layers: 2
  d_model: 48
  d_ff: 128
  h: 3
  dropout: 0.0
  train_steps: 400
  batch_tokens: 1024
  warmup_steps: 100
  eval_every: 400
  checkpoint_every: 400
  max_positions: 256
  beam: 1
rows:
  decoder-only:
    set: {architecture: decoder-only, decoder_layers: 1, positional_encoding: rope, norm: rmsnorm, norm_position: pre,
          activation: swiglu, n_heads: 4, n_kv_heads: 2, attention_bias: true}
"""

SIZES = {
    "n_layers": 2, "d_model": 24, "d_ff": 19, "n_heads": 4, "max_positions": 41,
    "relative_clip": 3,
}  # fmt: skip
LLAMA = {
    "architecture": "decoder-only", "positional_encoding": "rope", "norm": "rmsnorm", "norm_position": "pre",
    "activation": "swiglu",
}  # fmt: skip


def random_model(tokenizer, **fields):
    """An untrained model in which every parameter has an effect, also as a TrainedModel."""
    config = resolve_row({**SIZES, **fields})
    model = drawn(build(config, tokenizer.vocab_size, seed=1)).requires_grad_(False).eval()
    for name, parameter in model.named_parameters():
        if "W_Q" in name or "W_K" in name:
            parameter *= 3  # makes attention far from uniform
    return model, TrainedModel(
        config, model.state_dict(), tokenizer, ("en", "toy"), "sequence-to-sequence"
    )


def ours(opened, sentences, beam):
    """Token ids of our translations at alpha = 0."""
    return translate_ids(
        opened.model, sentences, DecodingConfig(beam=beam, alpha=0.0), torch.device("cpu")
    )


def until_end(rows):
    """Rows of token ids up to the end mark."""
    return [row[: row.index(EOS)] if EOS in row else row for row in rows]


def different(found, expected):
    """Indices of sentences with different translations."""
    return [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b]


def greedy_differences(trained, found, expected):
    """Indices of sentences whose greedy translations differ, up to the length at which ours stops.

    A model that has learned little may repeat itself for ever. Ours then ends at the limit of
    `max_extra_length`, and other libraries go on to theirs.
    """
    limits = [len(source) + DecodingConfig().max_extra_length for source in trained.ids]
    cut = [tokens[:limit] for tokens, limit in zip(found, limits, strict=True)]
    return different(cut, expected)
