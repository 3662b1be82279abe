"""Translate sentences by beam search, in batches of similar lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from ablate.config import DecodingConfig
from ablate.data.batches import pad
from ablate.data.tokenizer import EOS, Tokenizer
from ablate.decoding.beam import beam_search
from ablate.decoding.constraint import Constrain
from ablate.kernels.device import is_out_of_memory, release_cached_memory
from ablate.kernels.ranks import all_items, current_ranks
from ablate.model import Transformer

# Largest number of source tokens times hypotheses in a batch, by type of device. It does not affect
# the translations.
BATCH_TOKENS = {"cpu": 16_384, "cuda": 131_072}


class Translations(list[str]):
    """Translated texts.

    Attributes:
        cut: number of translations that were truncated by a length limit, by the setting of the
            limit.
    """

    def __init__(self, texts: Iterable[str], cut: Mapping[str, int]) -> None:
        super().__init__(texts)
        self.cut = dict(cut)


def translate(
    model: Transformer,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    device: torch.device,
    after_batch: Callable[[], None] = lambda: None,
    constrain: Constrain | None = None,
) -> Translations:
    """Translate sentences to text; see `translate_ids` for the arguments."""
    ids = translate_ids(model, sentences, decoding, device, after_batch, constrain)
    cut = Counter[str]()
    for sentence, translation in zip(sentences, ids, strict=True):
        limit, setting = _limit(model, len(sentence), decoding)
        if len(translation) >= limit:
            cut[setting] += 1
    return Translations(tokenizer.decode(ids), cut)


def translate_ids(
    model: Transformer,
    sentences: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    device: torch.device,
    after_batch: Callable[[], None] = lambda: None,
    constrain: Constrain | None = None,
) -> list[list[int]]:
    """Translate sentences.

    A translation has at most as many tokens as its source plus `max_extra_length`. If memory runs
    out, the batch is repeated in halves. Several ranks share the batches.

    Args:
        model: an encoder-decoder or a decoder-only model; put into eval mode.
        sentences: token ids without BOS and EOS, at most as many as the model has positions.
        decoding: settings of the search.
        device: device of the model.
        after_batch: called after each batch of this rank.
        constrain: makes the constraint of a batch from its sentences and its limits.

    Returns:
        Token ids of each translation, without BOS and EOS, in the order of the sentences.
    """
    model.eval()
    # Sorted by length, so that batches have little padding.
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    translations: list[tuple[int, list[int]]] = []
    ranks = current_ranks()
    batches = _batches(order, sentences, BATCH_TOKENS[device.type] // decoding.beam)
    batches = batches[ranks.index :: ranks.size]
    while batches:
        batch = batches.pop(0)
        texts = [sentences[i] for i in batch]
        results = _translate_batch(model, texts, decoding, device, constrain)
        if results is None:
            release_cached_memory(device)
            middle = len(batch) // 2
            batches[:0] = [batch[:middle], batch[middle:]]
            continue
        translations += zip(batch, results, strict=True)
        after_batch()
    return all_items(translations)


def _translate_batch(
    model: Transformer,
    sentences: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    device: torch.device,
    constrain: Constrain | None,
) -> list[list[int]] | None:
    """Translate a batch; None if memory runs out. For a single sentence, the error is raised."""
    source = pad([[*sentence, EOS] for sentence in sentences])
    limits = []
    for sentence in sentences:
        limit, _ = _limit(model, len(sentence), decoding)
        limits.append(limit)
    constraint = None
    try:
        if constrain is not None:
            constraint = constrain(sentences, limits)
        hypotheses = beam_search(
            model,
            source.to(device),
            torch.tensor(limits),  # on the host, which reads them at every step
            decoding.beam,
            decoding.alpha,
            decoding.early_stopping,
            constraint,
            decoding.length_penalty,
        )
    except (RuntimeError, MemoryError) as error:
        if len(sentences) == 1 or not is_out_of_memory(error):
            raise
        return None
    return [hypothesis.tokens for hypothesis in hypotheses]


def _limit(model: Transformer, source: int, decoding: DecodingConfig) -> tuple[int, str]:
    """The largest number of tokens that the translation of `source` tokens may have, and the name
    of the setting that limits it.
    """
    limit = source + decoding.max_extra_length
    positions = _max_target_length(model, source)
    if positions < limit:
        return positions, "max_positions"
    return limit, "max_extra_length"


def _max_target_length(model: Transformer, source: int) -> int:
    """The largest number of target tokens for which the model has positions."""
    prefix = 0 if model.config.has_encoder else source
    return model.config.max_positions - model.config.positions_needed(prefix, 0)


def _batches(order: list[int], sentences: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Divide sentences, in this order of ascending length, into batches of at most `tokens` padded
    tokens. A longer sentence is a batch of one sentence.
    """
    batches: list[list[int]] = []
    for i in order:
        if not batches or (len(batches[-1]) + 1) * (len(sentences[i]) + 1) > tokens:
            batches.append([])
        batches[-1].append(i)
    return batches
