"""Build the corpus of a stream in a working folder: the vocabulary, then the ids of every split,
then the manifest.

Memory does not grow with the text. An interrupted preparation begins again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.language_data import BYTES, LanguageData
from ablate.data.corpus import FORMAT, OFFSETS, TOKENIZER, LengthSums, SequenceWriter
from ablate.data.encoding import IDS
from ablate.data.stream_sources import StreamSource
from ablate.data.tokenizer import EOS, ByteTokenizer, ReservoirSample, Tokenizer, train_tokenizer
from ablate.errors import DataError
from ablate.formatting import plural
from ablate.store.corpora import MANIFEST, is_prepared
from ablate.store.files import remove_temporaries, sha256, sync_file, write_bytes
from ablate.store.records import CorpusManifest, Origin

# The hash of the text already identifies these settings.
_BY_CONTENT = ("corpus", "train", "dev", "test", "column", "rows", "max_bytes", "folder")
_LONGEST_LINE = 100_000  # characters; the vocabulary is learned on parts of longer lines


def stream_settings(data: Mapping[str, Any]) -> list[Any]:
    """The settings that determine how the text of a stream is prepared; for the id of the
    corpus.
    """
    kept = {name: data[name] for name in sorted(data) if name not in _BY_CONTENT}
    return [FORMAT, "stream", kept]


class StreamBuilder:
    """Prepares one corpus in a folder."""

    def __init__(
        self,
        folder: Path,
        data: LanguageData,
        sources: Mapping[str, StreamSource],
        origins: Mapping[str, Origin],
        log: Callable[[str], None],
    ) -> None:
        """Store the arguments; `build` does the work.

        Args:
            folder: the working folder; it need not exist.
            data: the study's data settings.
            sources: by split.
            origins: by split, with the hashes of its text.
            log: receives a line at the start of each phase.
        """
        self.folder, self.data, self.sources, self.origins, self.log = (
            folder,
            data,
            sources,
            origins,
            log,
        )

    def build(self) -> None:
        """Build the corpus; afterwards the folder holds a prepared one.

        Raises:
            DataError: the text cannot be used.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.folder)
        if is_prepared(self.folder):
            return
        tokenizer = self._vocabulary()
        write_bytes(self.folder / TOKENIZER, tokenizer.model)
        sums = {split: self._write(split, tokenizer) for split in self.sources}
        self._publish(sums)

    def _vocabulary(self) -> Tokenizer:
        if self.data.tokenizer == BYTES:
            return ByteTokenizer()
        sample = ReservoirSample[str](self.data.tokenizer_lines)
        for line in self._lines():
            sample.add(line)
        lines = sample.items()
        part = "" if len(lines) == sample.added else f"a sample of {len(lines):,} of "
        self.log(
            f"learning a vocabulary of {self.data.vocab_size:,} on "
            f"{part}{plural(sample.added, 'line')}"
        )
        return train_tokenizer(lines, self.data.vocab_size, self.data.tokenizer, lossless=True)

    def _lines(self) -> Iterator[str]:
        """The lines of the training text that are not empty, long ones in parts."""
        for piece in self.sources["train"].pieces():
            for line in piece.text.split("\n"):
                for start in range(0, len(line), _LONGEST_LINE):
                    yield line[start : start + _LONGEST_LINE]

    def _write(self, split: str, tokenizer: Tokenizer) -> LengthSums:
        """Write the ids of a split: the tokens of each document, with the end mark between two."""
        source, sums = self.sources[split], LengthSums(self.data.fields)
        self.log(f"encoding the {split} split")
        length, begins = 0, False
        with SequenceWriter(self.folder, split, self.data.fields[0]) as writer:
            for piece in source.pieces():
                begins |= piece.begins
                if not piece.text:  # the document begins with its first character
                    continue
                if begins and length:
                    writer.add_part(np.array([EOS], IDS))
                    writer.end_sequence()
                    sums.add(np.array([[length + 1]]))
                    length = 0
                begins = False
                ids = np.array(_encode(piece.text, tokenizer), IDS)
                writer.add_part(ids)
                length += len(ids)
            if not length:
                raise DataError(
                    f"{(*source.files(), self.data.corpus)[0]}: the {split} split has no text"
                )
            writer.end_sequence()
            sums.add(np.array([[length]]))
        return sums

    def _publish(self, sums: Mapping[str, LengthSums]) -> None:
        """Write the manifest last, once all other files are on disk."""
        files = sorted(self.folder.iterdir())
        hashes = {path.name: sha256(path) for path in files}
        values = self.data.model_dump(mode="json")
        training = [
            *stream_settings(values),
            hashes[TOKENIZER],
            *(self.origins[one].sha256 for one in ("train", "dev")),
        ]
        # By content: two files of different names may hold the same text.
        same = self.origins["dev"].sha256 == self.origins["train"].sha256
        manifest = CorpusManifest(
            format=FORMAT,
            training=hashlib.sha256(json.dumps(training, sort_keys=True).encode()).hexdigest()[:12],
            data={name: value for name, value in values.items() if name != "folder"},
            fields=self.data.fields,
            sources=dict(self.origins),
            pairs={split: each.records for split, each in sums.items()},
            left_out={},
            noticed=[
                "dev is the same text as the training split: scores on it do not apply to other "
                "text"
            ]
            * same,
            longest=sums["train"].longest,
            lengths=sums["train"].sums(),
            types={"ids": IDS.str, "offsets": OFFSETS.str},
            files=hashes,
            sizes={path.name: path.stat().st_size for path in files},
        )
        for path in files:
            sync_file(path)
        manifest.write(self.folder / MANIFEST)


def _encode(text: str, tokenizer: Tokenizer) -> list[int]:
    """The ids of a text. Lines are encoded one by one, which gives the same ids: a line end is a
    token of its own.
    """
    if isinstance(tokenizer, ByteTokenizer):
        return tokenizer.encode([text])[0]
    return [id for line in tokenizer.encode(_with_ends(text)) for id in line]


def _with_ends(text: str) -> list[str]:
    """Lines with their ends; only LF ends a line."""
    lines = text.split("\n")
    return [*(f"{line}\n" for line in lines[:-1]), *lines[-1:]]
