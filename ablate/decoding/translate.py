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

# Source tokens x hypotheses in one batch, by kind of device; does not affect the translations.
BATCH_TOKENS = {"cpu": 16_384, "cuda": 131_072}


class Translations(list[str]):
    """Texts, and the number of those that a limit of length ended, by the setting that limits."""

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
    """Translate sentences of token ids without marks to text, as `translate_ids`."""
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
    """Translate sentences of token ids to token ids, both without BOS and EOS. Order is kept.

    A translation has at most its source's length plus `max_extra_length` tokens. No source may have
    more tokens than the model has positions. Where memory runs out, a batch is decoded again in
    halves. `constrain` makes the constraint of a batch from its sentences and the limits of its
    translations. Several ranks share the batches; `after_batch` is called on each rank for its own.
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
        found = _translate_batch(model, [sentences[i] for i in batch], decoding, device, constrain)
        if found is None:
            release_cached_memory(device)
            # In front, so that the halves come next; a batch of one is not divided.
            batches[:0] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
            continue
        translations += zip(batch, found, strict=True)
        after_batch()
    return all_items(translations)


def _translate_batch(
    model: Transformer,
    sentences: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    device: torch.device,
    constrain: Constrain | None,
) -> list[list[int]] | None:
    """The translations of a batch; None if memory runs out, and it has several sentences."""
    source = pad([[*sentence, EOS] for sentence in sentences])
    limits = [_limit(model, len(sentence), decoding)[0] for sentence in sentences]
    constraint = None
    try:
        if constrain is not None:
            constraint = constrain(sentences, limits)
        rules = decoding.beam, decoding.alpha, decoding.early_stopping, constraint
        # Limits stay on the host, where the search reads them at every step.
        limits_on_host = torch.tensor(limits)
        form = decoding.length_penalty
        hypotheses = beam_search(model, source.to(device), limits_on_host, *rules, penalty=form)
    except (RuntimeError, MemoryError) as error:
        if len(sentences) == 1 or not is_out_of_memory(error):
            raise
        return None
    return [hypothesis.tokens for hypothesis in hypotheses]


def _limit(model: Transformer, source: int, decoding: DecodingConfig) -> tuple[int, str]:
    """Most tokens of the translation of such a source, and the setting that decides."""
    wanted = source + decoding.max_extra_length
    possible = _max_target_length(model, source)
    if possible < wanted:
        return possible, "max_positions"
    return wanted, "max_extra_length"


def _max_target_length(model: Transformer, source: int) -> int:
    """Largest number of target tokens that the model has positions for after such a source."""
    before = 0 if model.config.has_encoder else source
    return model.config.max_positions - model.config.positions_needed(before, 0)


def _batches(order: list[int], sentences: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Sentences in this order, in batches of at most `tokens` padded tokens; longer ones alone."""
    batches: list[list[int]] = [[]]
    for i in order:
        if batches[-1] and (len(batches[-1]) + 1) * (len(sentences[i]) + 1) > tokens:
            batches.append([])
        batches[-1].append(i)
    return [batch for batch in batches if batch]
