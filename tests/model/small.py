"""Small models whose sizes are distinct primes, so that any transposition breaks."""

import numpy as np
import torch

from ablate.config.resolve import resolve_row
from ablate.data.contexts import ContextBatch
from ablate.data.tokenizer import EOS
from ablate.model import build
from ablate.model.builder import ModelBuilder
from ablate.parts.positions import POSITIONAL_ENCODINGS

V = 31
SIZES = {
    "n_layers": 2, "d_model": 2 * 13, "d_ff": 19, "n_heads": 3, "d_k": 2 * 5, "d_v": 7, "max_positions": 23,
    "dropout": 0.0, "relative_clip": 3,
}  # fmt: skip
ENCODINGS = tuple(POSITIONAL_ENCODINGS)


def shape(**fields):
    """A configuration with the fields of `SIZES`, changed by `fields`."""
    return resolve_row({**SIZES, **fields})


def parts(**fields):
    """A ModelBuilder for this configuration, with seed 1."""
    return ModelBuilder(
        shape(**fields), V, torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    )


def places(count, first=0):
    """The positions of `count` tokens in their sentence."""
    return torch.arange(first, first + count)


def real(*lengths):
    """Key mask of sentences of these lengths, True at tokens: (B, 1, 1, S)."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])[:, None, None, :]


def small_model(vocab_size=V, seed=1, **fields):
    """A model in evaluation mode with random gains and biases too, so that every parameter has an
    effect.
    """
    return drawn(build(shape(**fields), vocab_size, seed), seed).eval()


def drawn(module, seed=1):
    """The module, with noise on its gains and biases: at 1 and 0 a missing one would go
    unnoticed.
    """
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter += 0.5 * torch.randn(parameter.shape, generator=random)
    return module


def sentences(*lengths, seed=1, vocab_size=V):
    """Token ids, padded with 0 at the end to the longest of these lengths."""
    drawn = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, vocab_size, (len(lengths), max(lengths)), generator=drawn)
    return tokens * (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])


def batch_of(rows):
    """The contexts of a language model with these tokens, each of which but the first is predicted."""
    inputs = np.zeros((len(rows), max(map(len, rows)) - 1), dtype=np.int64)
    for row, tokens in zip(inputs, rows, strict=True):
        row[: len(tokens) - 1] = tokens[:-1]
    targets = np.concatenate([tokens[1:] for tokens in rows])
    return ContextBatch.from_arrays(inputs, targets, inputs > 0, np.arange(len(targets)))


def normal(*size, seed=1):
    """Numbers from N(0, 1)."""
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def diverse_model(vocab_size=V, seed=1, ends=0.0, **fields):
    """An untrained model whose predictions differ by source and by earlier tokens.

    The untrained tied matrix repeats the last token for ever; this one has a product with the
    vocabulary of its own, over nats enough to have preferences, and `ends` added to the logit of
    the end mark.
    """
    model = build(shape(**fields), vocab_size, seed).requires_grad_(False).eval()
    matrix, bias = (
        0.4 * normal(vocab_size, model.config.d_model, seed=seed + 100),
        torch.zeros(vocab_size),
    )
    bias[EOS] = ends
    model.logits = lambda states: states @ matrix.T + bias
    for name, parameter in model.named_parameters():
        if "W_Q" in name:
            parameter *= 5  # sharp attention weights
    return model


def unigram_model(probabilities):
    """A model that predicts token i with `probabilities[i]`, whatever the source and the earlier
    tokens.

    The embedding is the identity, and the last normalization has no gain, and the log-probabilities
    for its bias.
    """
    size = len(probabilities)
    model = (
        build(shape(d_model=size, positional_encoding="none"), size, 1).requires_grad_(False).eval()
    )
    model.embedding.weight.copy_(torch.eye(size))
    last = model.decoder[-1].around_feed_forward.norm
    last.weight.zero_()
    last.bias.copy_(torch.tensor(probabilities).log())
    return model
