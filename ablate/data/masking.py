"""Masks of masked language models: tokens that are predicted, and what is read instead.

A mask is a pure function of a key and of the token's place in the stream. In training the key is
(seed, step): every step has other masks, and a resumed run has the same ones. In evaluation the key
is a fixed seed: rows with the same vocabulary predict the same tokens, however the stream is cut
into contexts. There are two exceptions: words that the border of a context cuts, and the token that
is added to a context without any chosen one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ablate.data.contexts import ContextBatch, Contexts
from ablate.data.draws import uniform
from ablate.data.tokenizer import FIRST_TOKEN, MASK, PAD, Tokenizer

_CHOICE, _READING, _REPLACEMENT = 1, 2, 3  # the draws of a token


@dataclass(frozen=True)
class Masking:
    """Rules by which tokens are chosen and replaced.

    rate: share of the tokens that are predicted.
    read_as_mask, read_as_random: shares of those that the model reads as the mask, and as a random
        token; it reads the others unchanged.
    whole_word: whether words are chosen, with all of their tokens.
    """

    rate: float
    read_as_mask: float
    read_as_random: float
    whole_word: bool

    @staticmethod
    def of(rate: float, split: str, whole_word: bool) -> Masking:
        """The masking of a row; `split` is such as `80/10/10`."""
        mask, random, _ = map(int, split.split("/"))
        return Masking(rate, mask / 100, random / 100, whole_word)


@dataclass(frozen=True)
class Spaces:
    """Where the texts of token ids have white space, which divides a stream into words.

    White space belongs to the word after it, whether it is a token of its own, as with bytes, or
    part of the word's first piece. A mark is a word of its own.

    mark: no text.
    before, after: white space or a mark at the beginning, and at the end.
    only: nothing but white space.
    """

    mark: NDArray[np.bool_]
    before: NDArray[np.bool_]
    after: NDArray[np.bool_]
    only: NDArray[np.bool_]

    @staticmethod
    def of(tokenizer: Tokenizer) -> Spaces:
        """The white space in the tokens of a vocabulary."""
        spaces = []
        for text in tokenizer.texts():
            ends = not text or text[0].isspace(), not text or text[-1].isspace()
            spaces.append((not text, *ends, text.isspace()))
        return Spaces(*np.array(spaces).T)


@dataclass(frozen=True)
class MaskedContexts(Contexts):
    """Contexts with masks. At least one token of each context is predicted.

    masking: how tokens are chosen.
    key: of the draws.
    vocab_size: V.
    spaces: by token id, where its text has white space.
    """

    masking: Masking
    key: tuple[int, ...]
    vocab_size: int
    spaces: Spaces

    @staticmethod
    def over(
        contexts: Contexts, masking: Masking, key: tuple[int, ...], tokenizer: Tokenizer
    ) -> MaskedContexts:
        """The contexts with these masks."""
        c = contexts
        plain = (c.ids, c.offsets, c.starts, c.ends, c.scored, c.begins)
        return MaskedContexts(*plain, masking, key, tokenizer.vocab_size, Spaces.of(tokenizer))

    def with_key(self, *key: int) -> MaskedContexts:
        """These contexts with the masks of another key."""
        return replace(self, key=key)

    def chosen(
        self, items: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """What `places` returns for some contexts, and whether each token is predicted, (B, T)."""
        places, is_token = self.places(items)
        # All tokens of a word have the draw of its first one, and so are chosen together.
        chosen_by = self._word_starts(places) if self.masking.whole_word else places
        # 2.0 for padding: never below a limit of at most 1.
        drawn = np.where(is_token, uniform(self.key, _CHOICE, chosen_by), 2.0)
        # The smallest draw of a context is always chosen.
        limit = np.maximum(self.masking.rate, np.nextafter(drawn.min(1, keepdims=True), 1.0))
        return places, is_token, drawn < limit

    def _word_starts(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of the first token of each token's word within the context."""
        ids = self.ids[places]
        spaces = self.spaces
        token = ids[:, 1:]
        previous = ids[:, :-1]
        first = np.ones(ids.shape, dtype=bool)
        has_space = (spaces.before[token] | spaces.after[previous]) & ~spaces.only[previous]
        first[:, 1:] = spaces.mark[token] | has_space
        columns = np.where(first, np.arange(ids.shape[1]), 0)
        return places[:, :1] + np.maximum.accumulate(columns, axis=1)

    def counts(self, items: Sequence[int] | NDArray[np.int64]) -> int:
        """Number of predicted tokens of some contexts."""
        return int(self.chosen(np.asarray(items))[2].sum())

    def collate(self, items: Sequence[int] | NDArray[np.int64]) -> ContextBatch:
        """Make the padded batch of some contexts; its targets are the predicted tokens."""
        places, is_token, is_chosen = self.chosen(np.asarray(items))
        inputs = np.where(is_token, self.ids[places], PAD).astype(np.int64)
        targets = inputs[is_chosen]
        where = places[is_chosen]
        reading = uniform(self.key, _READING, where)
        masking = self.masking
        span = self.vocab_size - FIRST_TOKEN
        random = FIRST_TOKEN + (uniform(self.key, _REPLACEMENT, where) * span).astype(np.int64)
        is_random = reading < masking.read_as_mask + masking.read_as_random
        read = np.where(is_random, random, targets)
        inputs[is_chosen] = np.where(reading < masking.read_as_mask, MASK, read)
        return ContextBatch.of(inputs, targets, is_chosen, where)
