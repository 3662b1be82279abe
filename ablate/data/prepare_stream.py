"""Preparation of a stream of documents: a lossless vocabulary, and the token ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from ablate.config.identity import LATER_DATA, named_settings
from ablate.config.language_data import BYTES
from ablate.data.corpus import FORMAT
from ablate.data.preparation import Chunk, Preparation, digest
from ablate.data.tokenizer import EOS, IDS, ByteTokenizer, Encoded, Tokenizer, load_tokenizer
from ablate.data.vocabulary import train_tokenizer
from ablate.errors import DataError
from ablate.store.files import write_bytes
from ablate.store.records import TrainingText

# Settings that ids leave out, because they only say which text is used: its hash is in the ids
_TEXT_SETTINGS = (
    "corpus", "train", "dev", "test", "column", "rows", "max_bytes", "folder", "minimal_pairs",
)  # fmt: skip
_LONGEST_LINE = 100_000  # characters; longer lines are cut before the vocabulary is learned


class StreamPreparation(Preparation):
    """Prepares a stream. Each document is a sequence. An end mark separates documents."""

    end_marks: ClassVar[int] = 0  # end marks are among the ids

    def learn(self) -> TrainingText:
        """Write the vocabulary: bytes, or pieces learned on a sample of lines."""
        write_bytes(self.models[0], self._vocabulary().model)
        return TrainingText(records=0, left_out={}, repaired={}, warnings=[])

    def _vocabulary(self) -> Tokenizer:
        if self.data.tokenizer == BYTES:
            return ByteTokenizer()
        lines, _ = self.draw_sample(self._lines(), self.data.tokenizer_lines, "line")
        return train_tokenizer(
            lines,
            self.data.vocab_size,
            self.data.tokenizer,
            lossless=True,
            coverage=self.data.character_coverage,
        )

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the training text that are not empty. Long lines come in pieces."""
        for document in self.sources["train"].documents():
            for line in document.texts[0].split("\n"):
                for start in range(0, len(line), _LONGEST_LINE):
                    yield line[start : start + _LONGEST_LINE]

    def encode_split(
        self, split: str, total: int, start: int, left_out: Counter[str]
    ) -> Iterator[Chunk]:
        """Yield the ids of each piece of a document, with an end mark between documents."""
        self.log(f"encoding the {split} split")
        tokenizer = load_tokenizer(self.models[0].read_bytes())
        source = self.sources[split]
        has_text = start > 0
        begins = False  # whether the next text begins a document
        n_read = 0  # documents and pieces since the last chunk
        for document in islice(source.documents(), start, None):
            n_read += 1
            begins |= document.begins
            (text,) = document.texts
            if not text:
                continue
            ids = _encode(text, tokenizer)
            ends = []
            if begins and has_text:
                ids = [EOS, *ids]
                ends = [1]
            has_text = True
            begins = False
            yield Chunk(n_read, [Encoded(np.array(ids, IDS), np.array(ends, np.int64))])
            n_read = 0
        if not has_text:
            raise DataError(f"{source.location}: the {split} split has no text")
        # End the last document, without an end mark.
        yield Chunk(n_read, [Encoded(np.array([], IDS), np.array([0]))])

    def settings(self, data: Mapping[str, Any], fields: Sequence[str]) -> list[Any]:
        """All settings except `_TEXT_SETTINGS`."""
        settings = {name: data[name] for name in sorted(data) if name not in _TEXT_SETTINGS}
        return [FORMAT, "stream", named_settings(settings, LATER_DATA)]

    def training_id(self, content: Mapping[str, Any], vocabulary: Sequence[str]) -> str:
        """Hash of all that determines the ids of train and dev, without the test split."""
        return digest([*self.corpus_settings, *vocabulary, *content.values()], sort_keys=True)

    def content_id(self, hashes: Sequence[str]) -> str:
        """Id of the corpus: 12 hexadecimal digits, from the hashes of its text and its settings."""
        return digest([*self.corpus_settings, list(hashes)], sort_keys=True)


def _encode(text: str, tokenizer: Tokenizer) -> list[int]:
    """Encode a text line by line, so that a line end is a token."""
    if isinstance(tokenizer, ByteTokenizer):
        return tokenizer.encode([text])[0]
    *lines, last = text.split("\n")  # not splitlines(), for which other characters end lines too
    ids: list[int] = []
    for line_ids in tokenizer.encode([*(f"{line}\n" for line in lines), last]):
        ids += line_ids
    return ids
