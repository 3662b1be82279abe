"""Translate sentences by beam search, in batches of similar lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ablate.config import DecodingConfig
from ablate.data.batches import pad
from ablate.data.tokenizer import EOS, Tokenizer
from ablate.decoding.beam import beam_search
from ablate.model import Transformer

BATCH_TOKENS = 16384  # source tokens x hypotheses in one batch; does not affect the translations


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
    """Translate sentences of token ids to token ids, both without BOS and EOS. Order is kept.

    A translation has at most its source's length plus `max_extra_length` tokens. No source may have more tokens
    than the model has positions.
    """
    model.eval()
    # Sorted by length, so that batches have little padding.
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    translations: list[list[int]] = [[]] * len(sentences)
    for batch in _batches(order, sentences, BATCH_TOKENS // decoding.beam):
        sources = [[*sentences[i], EOS] for i in batch]
        limits = [
            min(len(sentences[i]) + decoding.max_extra_length, _max_target_length(model, len(sentences[i])))
            for i in batch
        ]
        hypotheses = beam_search(model, pad(sources).to(device), torch.tensor(limits), decoding.beam, decoding.alpha)
        for i, hypothesis in zip(batch, hypotheses, strict=True):
            translations[i] = hypothesis.tokens
        after_batch()
    return translations


def _max_target_length(model: Transformer, source: int) -> int:
    """Largest number of target tokens for which the model has positions, given the source length."""
    return model.config.max_positions - model.config.places(source if not model.config.has_encoder else 0, 0)


def _batches(order: list[int], sentences: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Divide sentences, in this order, into batches of at most `tokens` padded tokens; a longer sentence is alone."""
    batches: list[list[int]] = [[]]
    for i in order:
        if batches[-1] and (len(batches[-1]) + 1) * (len(sentences[i]) + 1) > tokens:
            batches.append([])
        batches[-1].append(i)
    return [batch for batch in batches if batch]
