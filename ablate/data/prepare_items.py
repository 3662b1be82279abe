"""Preparation of generated items: the names of their tokens, and one pass over each split."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.config.synthetic_data import SyntheticData
from ablate.data.items import DrawnItems, make_items, texts_of
from ablate.data.preparation import Chunk
from ablate.data.prepare_stream import StreamPreparation
from ablate.data.sources import Document, Source
from ablate.data.tokenizer import IDS, Encoded, SymbolTokenizer, Tokenizer
from ablate.formatting import percent

_CHUNK_ITEMS = 256


@dataclass
class DrawnSource(Source):
    """The items of a split as texts, drawn when they are read."""

    data: SyntheticData
    split: str

    @property
    def items(self) -> DrawnItems:
        """The items."""
        return make_items(self.data, self.split)

    def documents(self) -> Iterator[Document]:
        """Yield each item as a document."""
        for text in texts_of(self.items):
            yield Document((text,))

    def content(self) -> list[str]:
        """The hash of the settings, which determine the items."""
        return [hashlib.sha256(json.dumps(self.settings()).encode()).hexdigest()]

    def settings(self) -> list[Any]:
        """The split, the data settings, and the module of a user's generator."""
        draw = self.data.generator.draw
        values = self.data.model_dump(mode="json", exclude={"train", "dev", "test"})
        module = "" if draw is None else draw.__module__
        return [self.split, getattr(self.data, self.split), values, module]


class ItemPreparation(StreamPreparation):
    """Prepares generated items. Each item is a sequence."""

    data: SyntheticData

    def _vocabulary(self) -> Tokenizer:
        return SymbolTokenizer.of(self.data.generator.tokens(self.data))

    def encode_split(
        self, split: str, total: int, start: int, left_out: Counter[str]
    ) -> Iterator[Chunk]:
        """Yield the tokens of the items in chunks."""
        source = self.sources[split]
        assert isinstance(source, DrawnSource)
        items = source.items
        for first in range(start, len(items), _CHUNK_ITEMS):
            indices = np.arange(first, min(first + _CHUNK_ITEMS, len(items)))
            inputs = items.draw(indices).inputs
            lengths = items.lengths[indices].astype(np.int64)
            is_token = np.arange(inputs.shape[1]) < lengths[:, None]
            yield Chunk(len(indices), [Encoded(inputs[is_token].astype(IDS), lengths)])

    def overlap(self, split: str) -> None:
        """The share of repeated items is a warning."""

    def encoding_warnings(self, split: str, shares: Mapping[str, float]) -> list[str]:
        """Warn of test items that may occur in training."""
        source = self.sources[split]
        assert isinstance(source, DrawnSource)
        overlap = source.items.overlap() if split == "test" else 0.0
        if not overlap:
            return []
        return [
            f"test: {percent(overlap, 1)} of the items may occur in training, because no item "
            f"of their size is held out, or hardly any is not"
        ]
