"""Text to token ids, many texts at once.

A BPE vocabulary merges within words only, so a text's ids are its words' ids one after another, and
each word is encoded once: three times as fast as SentencePiece's batch encoder on Tatoeba (V=8000,
one core; benchmarks/prepare.py). A unigram vocabulary scores a text as a whole, so SentencePiece
encodes every text.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ablate.data.tokenizer import SPACE, Tokenizer

IDS = np.dtype("<u4")
# A limit, because the number of different words grows with the corpus.
MAX_WORDS = 500_000  # in an encoder's cache: about 100 MB


@dataclass(frozen=True)
class Encoded:
    """Token ids of many texts, concatenated, and the length of each text in tokens."""

    ids: NDArray[np.uint32]
    lengths: NDArray[np.int64]

    def only(self, keep: NDArray[np.bool_]) -> Encoded:
        """The texts selected by a mask."""
        if keep.all():
            return self
        return Encoded(self.ids[np.repeat(keep, self.lengths)], self.lengths[keep])


class TextEncoder:
    """Encodes texts with one vocabulary; caches the ids of words."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        # Two spaces in a row have an empty word between them.
        self.words: dict[str, bytes] = {"": b""}

    def __call__(self, texts: Sequence[str]) -> Encoded:
        """Token ids of the texts, without BOS and EOS."""
        encode = self._by_words if self.tokenizer.kind == "bpe" else self._whole
        encoded = encode(texts)
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) // IDS.itemsize
        return Encoded(np.frombuffer(b"".join(encoded), dtype=IDS), lengths)

    def _by_words(self, texts: Sequence[str]) -> list[bytes]:
        if len(self.words) > MAX_WORDS:  # bounds memory; frequent words are soon back in the cache
            self.words = {"": b""}
        encoded = list(map(self._lookup, texts))
        unknown = [index for index, ids in enumerate(encoded) if ids is None]
        self._add({word for index in unknown for word in texts[index].split(" ")})
        for index in unknown:
            encoded[index] = self._lookup(texts[index])
        return cast("list[bytes]", encoded)

    def _lookup(self, text: str) -> bytes | None:
        """The ids of a text, or None if one of its words is new."""
        if SPACE in text:  # SentencePiece divides words at it, too
            return self._whole([text])[0]
        try:
            return b"".join(map(self.words.__getitem__, text.split(" ")))
        except KeyError:
            return None

    def _add(self, words: set[str]) -> None:
        new = [word for word in words if word not in self.words]
        self.words.update(zip(new, self._whole(new), strict=True))

    def _whole(self, texts: Sequence[str]) -> list[bytes]:
        """Encode each text as a whole, with SentencePiece."""
        ids = self.tokenizer.encode(list(texts))
        ends = np.cumsum([0, *map(len, ids)]) * IDS.itemsize
        whole = np.fromiter(chain.from_iterable(ids), dtype=IDS).tobytes()
        return [whole[start:end] for start, end in itertools.pairwise(ends.tolist())]


def load_encoders(models: Sequence[Path]) -> list[TextEncoder]:
    """An encoder for each field's vocabulary file; fields that share a file share the encoder."""
    by_path = {path: TextEncoder(Tokenizer(path.read_bytes())) for path in set(models)}
    return [by_path[path] for path in models]
