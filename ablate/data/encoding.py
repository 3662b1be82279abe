"""Encode many texts at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ablate.data.tokenizer import Tokenizer

IDS = np.dtype("<u4")


@dataclass(frozen=True)
class Encoded:
    """Token ids of many texts, concatenated, and the length of each text in tokens."""

    ids: NDArray[np.uint32]
    lengths: NDArray[np.int64]

    def select(self, keep: NDArray[np.bool_]) -> Encoded:
        """The texts where a mask is true."""
        if keep.all():
            return self
        return Encoded(self.ids[np.repeat(keep, self.lengths)], self.lengths[keep])


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> Encoded:
    """Token ids of the texts, without BOS and EOS."""
    ids = tokenizer.encode(list(texts))
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    return Encoded(np.fromiter(chain.from_iterable(ids), dtype=IDS), lengths)
