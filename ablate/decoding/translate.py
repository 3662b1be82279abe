"""Sentences in, sentences out: batches by length, beam search, detokenized text in the order given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ablate.config import DecodingConfig
from ablate.data.batches import pad
from ablate.data.tokenizer import EOS, Tokenizer
from ablate.decoding.beam import beam_search
from ablate.model import Transformer

BATCH_TOKENS = 16384  # source tokens times hypotheses at once; it has no part in what comes out


def translate(
    model: Transformer,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    device: torch.device,
    after_batch: Callable[[], None] = lambda: None,
) -> list[str]:
    """Translate sentences of token ids without marks to text; arguments and limits as for `translate_ids`."""
    return tokenizer.decode(translate_ids(model, sentences, decoding, device, after_batch))


def translate_ids(
    model: Transformer,
    sentences: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    device: torch.device,
    after_batch: Callable[[], None] = lambda: None,
) -> list[list[int]]:
    """Translate sentences of token ids without marks, none longer than the model's positions, to such ids.

    A translation has at most its source's length plus `max_extra_length` tokens.
    """
    model.eval()
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    translations: list[list[int]] = [[]] * len(sentences)
    for batch in _batches(order, sentences, BATCH_TOKENS // decoding.beam):
        sources = [[*sentences[i], EOS] for i in batch]
        limits = [min(len(sentences[i]) + decoding.max_extra_length, _room(model, len(sentences[i]))) for i in batch]
        found = beam_search(model, pad(sources).to(device), torch.tensor(limits), decoding.beam, decoding.alpha)
        for i, hypothesis in zip(batch, found, strict=True):
            translations[i] = hypothesis.tokens
        after_batch()
    return translations


def _room(model: Transformer, source: int) -> int:
    """Tokens that the translation of a source may have at most for both to find their places."""
    return model.config.max_positions - model.config.places(source if not model.config.has_encoder else 0, 0)


def _batches(order: list[int], sentences: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Sentences, shortest first, in groups of at most `tokens` padded tokens, or single ones."""
    batches: list[list[int]] = [[]]
    for i in order:
        if batches[-1] and (len(batches[-1]) + 1) * (len(sentences[i]) + 1) > tokens:
            batches.append([])
        batches[-1].append(i)
    return [batch for batch in batches if batch]
