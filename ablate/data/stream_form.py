"""Preparation of a stream of documents: a vocabulary that keeps every byte, and the ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from ablate.config.identity import LATER_DATA, named_settings
from ablate.config.language_data import BYTES
from ablate.data.builder import Chunk, Preparation, digest
from ablate.data.corpus import FORMAT
from ablate.data.encoding import IDS, Encoded
from ablate.data.tokenizer import EOS, ByteTokenizer, Tokenizer, load_tokenizer
from ablate.data.vocabulary import train_tokenizer
from ablate.errors import DataError
from ablate.store.files import write_bytes
from ablate.store.records import TrainingText

# The hash of the text already identifies these settings.
_BY_CONTENT = (
    "corpus", "train", "dev", "test", "column", "rows", "max_bytes", "folder", "minimal_pairs",
)  # fmt: skip
_LONGEST_LINE = 100_000  # characters; the vocabulary is learned on parts of longer lines


class DocumentStream(Preparation):
    """A stream: each document is a sequence, with the end mark between two."""

    end_marks: ClassVar[int] = 0  # the ids hold them
    compared: ClassVar[tuple[str, ...]] = ("dev",)  # test may be the dev split

    def learn(self) -> TrainingText:
        """Write the vocabulary: that of bytes, or one learned on a sample of lines."""
        write_bytes(self.models[0], self._vocabulary().model)
        return TrainingText(pairs=0, left_out={}, repaired={}, noticed=[])

    def _vocabulary(self) -> Tokenizer:
        if self.data.tokenizer == BYTES:
            return ByteTokenizer()
        lines, _ = self.sampled(self._lines(), self.data.tokenizer_lines, "line")
        kind = (self.data.vocab_size, self.data.tokenizer)
        coverage = self.data.character_coverage
        return train_tokenizer(lines, *kind, lossless=True, coverage=coverage)

    def _lines(self) -> Iterator[str]:
        """The lines of the training text that are not empty, long ones in parts."""
        for document in self.sources["train"].documents():
            for line in document.texts[0].split("\n"):
                for start in range(0, len(line), _LONGEST_LINE):
                    yield line[start : start + _LONGEST_LINE]

    def encoded(
        self, split: str, total: int, start: int, left_out: Counter[str]
    ) -> Iterator[Chunk]:
        """The ids of each document, by pieces, and the end mark between two."""
        self.log(f"encoding the {split} split")
        tokenizer = load_tokenizer(self.models[0].read_bytes())
        source = self.sources[split]
        started = start > 0
        begins = False
        read = 0
        for document in islice(source.documents(), start, None):
            read += 1
            begins |= document.begins
            (text,) = document.texts
            if not text:  # the document begins with its first character
                continue
            ids = _encode(text, tokenizer)
            ends = []
            if begins and started:
                ids = [EOS, *ids]
                ends = [1]
            started = True
            begins = False
            yield Chunk(read, [Encoded(np.array(ids, IDS), np.array(ends, np.int64))])
            read = 0
        if not started:
            raise DataError(f"{source.location}: the {split} split has no text")
        # Ends the last document, without an end mark.
        yield Chunk(read, [Encoded(np.array([], IDS), np.array([0]))])

    def settings(self, data: Mapping[str, Any], fields: Sequence[str]) -> list[Any]:
        """All settings but those that the hash of the text identifies."""
        kept = {name: data[name] for name in sorted(data) if name not in _BY_CONTENT}
        return [FORMAT, "stream", named_settings(kept, LATER_DATA)]

    def training_id(self, content: Mapping[str, Any], vocabulary: Sequence[str]) -> str:
        """The ids follow from the text and the vocabulary."""
        return digest([*self.corpus_settings, *vocabulary, *content.values()], sort_keys=True)

    def content_id(self, hashes: Sequence[str]) -> str:
        """The id of the corpus made from text with these hashes: 12 hexadecimal digits."""
        return digest([*self.corpus_settings, list(hashes)], sort_keys=True)


def _encode(text: str, tokenizer: Tokenizer) -> list[int]:
    """The ids of a text, line by line: a line end is a token of its own."""
    if isinstance(tokenizer, ByteTokenizer):
        return tokenizer.encode([text])[0]
    *lines, last = text.split("\n")  # only LF ends a line
    ids: list[int] = []
    for of_line in tokenizer.encode([*(f"{line}\n" for line in lines), last]):
        ids += of_line
    return ids
