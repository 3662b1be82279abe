"""Text to ids, many sentences at once.

A BPE vocabulary merges within words alone, so a sentence's ids are its words' ids one after another, and each word
is looked up once: three times as fast as SentencePiece's batch encoder on Tatoeba (V=8000, one core; benchmarks/
prepare.py). A unigram vocabulary weighs a sentence as a whole, and SentencePiece encodes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ablate.data.tokenizer import Tokenizer

IDS = np.dtype("<u4")
MAX_WORDS = 500_000  # kept at once: about 100 MB
_SPACE = "\u2581"  # SentencePiece writes spaces so, and a text that holds it is encoded as a whole


@dataclass(frozen=True)
class Encoded:
    """Sentences as ids: all behind one another, and how many each has."""

    ids: NDArray[np.uint32]
    lengths: NDArray[np.int64]

    def only(self, keep: NDArray[np.bool_]) -> Encoded:
        """Those sentences that are kept."""
        return self if keep.all() else Encoded(self.ids[np.repeat(keep, self.lengths)], self.lengths[keep])


class Encoder:
    """Encodes sentences with one vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.words: dict[str, bytes] = {"": b""}  # between two spaces there is no word

    def __call__(self, sentences: Sequence[str]) -> Encoded:
        """The ids of sentences, without marks."""
        found = self._by_words(sentences) if self.tokenizer.kind == "bpe" else self._whole(sentences)
        lengths = np.fromiter(map(len, found), dtype=np.int64, count=len(found)) // IDS.itemsize
        return Encoded(np.frombuffer(b"".join(found), dtype=IDS), lengths)

    def _by_words(self, sentences: Sequence[str]) -> list[bytes]:
        if len(self.words) > MAX_WORDS:
            self.words = {"": b""}
        encoded = [self._known(sentence) for sentence in sentences]
        unknown = [place for place, ids in enumerate(encoded) if ids is None]
        self._learn({word for place in unknown for word in sentences[place].split(" ")})
        for place in unknown:
            encoded[place] = self._known(sentences[place])
        return cast("list[bytes]", encoded)

    def _known(self, sentence: str) -> bytes | None:
        """The ids of a sentence; None where it has a word that is not known yet."""
        if _SPACE in sentence:
            return self._whole([sentence])[0]
        try:
            return b"".join(map(self.words.__getitem__, sentence.split(" ")))
        except KeyError:
            return None

    def _learn(self, words: set[str]) -> None:
        new = [word for word in words if word not in self.words]
        self.words.update(zip(new, self._whole(new), strict=True))

    def _whole(self, sentences: Sequence[str]) -> list[bytes]:
        """By SentencePiece itself."""
        ids = self.tokenizer.encode(list(sentences))
        ends = np.cumsum([0, *map(len, ids)]) * IDS.itemsize
        whole = np.fromiter(chain.from_iterable(ids), dtype=IDS).tobytes()
        return [whole[start:end] for start, end in itertools.pairwise(ends.tolist())]
