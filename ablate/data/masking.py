"""Masks of masked language models: which tokens are predicted, and what the model reads instead.

Masks depend on a key and on the index of the token in the stream. In training, the key is (seed,
step), so that each step has new masks, and a resumed run repeats them. In evaluation, the key is a
fixed seed, so that rows with the same vocabulary predict the same tokens, however the stream is cut
into contexts. Two exceptions depend on the contexts: words across the end of a context, and the
token that is chosen if a context would have no target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from ablate.data.contexts import ContextBatch, Contexts
from ablate.data.draws import uniform
from ablate.data.tokenizer import FIRST_TOKEN, MASK, PAD, Tokenizer

# Numbers of the three draws for a token
_CHOICE = 1
_READING = 2
_REPLACEMENT = 3


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen and replaced.

    rate: share of the tokens that are predicted.
    read_as_mask: share of the predicted tokens that the model reads as the mask.
    read_as_random: share of the predicted tokens that the model reads as a random token. The model
        reads the remaining tokens unchanged.
    whole_word: whether whole words are chosen.
    """

    rate: float
    read_as_mask: float
    read_as_random: float
    whole_word: bool

    @staticmethod
    def parse(rate: float, split: str, whole_word: bool) -> Masking:
        """The masking of a row, whose `mask_split` is a text such as `80/10/10`."""
        mask, random, _ = map(int, split.split("/"))
        return Masking(rate, mask / 100, random / 100, whole_word)


@dataclass(frozen=True)
class Spaces:
    """White space in the tokens of a vocabulary, which divides a stream into words.

    White space belongs to the following word, whether it is a separate token, as with bytes, or
    part of the word's first piece. Each mark is a word. All arrays have the shape (V,).

    is_mark: whether the token is a mark, which has no text.
    starts_with_space: whether the text of the token starts with white space; true for marks.
    ends_with_space: whether the text of the token ends with white space; true for marks.
    is_space: whether the text of the token is only white space.
    """

    is_mark: NDArray[np.bool_]
    starts_with_space: NDArray[np.bool_]
    ends_with_space: NDArray[np.bool_]
    is_space: NDArray[np.bool_]

    @staticmethod
    def find(tokenizer: Tokenizer) -> Spaces:
        """Find the white space in the tokens of a vocabulary."""
        rows = []
        for text in tokenizer.texts():
            is_mark = not text
            starts_with_space = is_mark or text[0].isspace()
            ends_with_space = is_mark or text[-1].isspace()
            rows.append((is_mark, starts_with_space, ends_with_space, text.isspace()))
        return Spaces(*np.array(rows).T)


@dataclass(frozen=True)
class MaskedContexts(Contexts):
    """Contexts with masks. At least one token of each context is predicted.

    masking: how tokens are chosen and replaced.
    key: key of the draws.
    vocab_size: V.
    spaces: white space in the vocabulary.
    """

    masking: Masking
    key: tuple[int, ...]
    vocab_size: int
    spaces: Spaces

    @staticmethod
    def mask(
        contexts: Contexts, masking: Masking, key: tuple[int, ...], tokenizer: Tokenizer
    ) -> MaskedContexts:
        """Mask contexts."""
        unmasked = {field.name: getattr(contexts, field.name) for field in fields(contexts)}
        V = tokenizer.vocab_size
        return MaskedContexts(
            **unmasked, masking=masking, key=key, vocab_size=V, spaces=Spaces.find(tokenizer)
        )

    def replace_key(self, *key: int) -> MaskedContexts:
        """The same contexts with the masks of another key."""
        return replace(self, key=key)

    def choose_targets(
        self, items: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
        """Choose the predicted tokens of some contexts.

        Returns:
            The two arrays of `token_indices`, and whether each token is predicted (B, T).
        """
        indices, is_token = self.token_indices(items)
        # All tokens of a word have the draw of its first token, so they are chosen together.
        counters = self._word_starts(indices) if self.masking.whole_word else indices
        draws = np.where(is_token, uniform(self.key, _CHOICE, counters), 2.0)  # 2: never chosen
        # The token with the smallest draw of a context is always chosen.
        limit = np.maximum(self.masking.rate, np.nextafter(draws.min(1, keepdims=True), 1.0))
        return indices, is_token, draws < limit

    def _word_starts(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The index of the first token of each token's word, within the context."""
        ids = self.ids[indices]
        spaces = self.spaces
        token = ids[:, 1:]
        previous = ids[:, :-1]
        begins_word = np.ones(ids.shape, dtype=bool)
        has_space = spaces.starts_with_space[token] | spaces.ends_with_space[previous]
        begins_word[:, 1:] = spaces.is_mark[token] | (has_space & ~spaces.is_space[previous])
        columns = np.where(begins_word, np.arange(ids.shape[1]), 0)
        return indices[:, :1] + np.maximum.accumulate(columns, axis=1)

    def count_targets(self, items: Sequence[int] | NDArray[np.int64]) -> int:
        """Number of predicted tokens of some contexts."""
        return int(self.choose_targets(np.asarray(items))[2].sum())

    def collate(self, items: Sequence[int] | NDArray[np.int64]) -> ContextBatch:
        """Make the padded batch of some contexts. Its targets are the predicted tokens."""
        indices, is_token, is_target = self.choose_targets(np.asarray(items))
        inputs = np.where(is_token, self.ids[indices], PAD).astype(np.int64)
        targets = inputs[is_target]
        target_indices = indices[is_target]
        reading = uniform(self.key, _READING, target_indices)
        span = self.vocab_size - FIRST_TOKEN
        replacement = uniform(self.key, _REPLACEMENT, target_indices)
        random_tokens = FIRST_TOKEN + (replacement * span).astype(np.int64)
        mask_share = self.masking.read_as_mask
        is_random = reading < mask_share + self.masking.read_as_random
        unmasked = np.where(is_random, random_tokens, targets)
        inputs[is_target] = np.where(reading < mask_share, MASK, unmasked)
        return ContextBatch.from_arrays(inputs, targets, is_target, target_indices)
