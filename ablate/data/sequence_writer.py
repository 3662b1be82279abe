"""Write the token sequences of a corpus."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ablate.data.corpus import OFFSETS
from ablate.data.tokenizer import IDS, Encoded


class SequenceWriter:
    """Writes one field of a split chunk by chunk: FOLDER/SPLIT.FIELD.ids and .offsets."""

    def __init__(
        self, folder: Path, split: str, field: str, end: Sequence[int] | None = None
    ) -> None:
        """Start new files, or continue from `end`, the sizes that `commit` returned."""
        self._paths = [folder / f"{split}.{field}.{suffix}" for suffix in ("ids", "offsets")]
        self._files: list[BinaryIO] = []
        self._end = end

    def __enter__(self) -> SequenceWriter:
        if self._end is None:
            for path in self._paths:
                path.unlink(missing_ok=True)  # may be a hard link to the file of another corpus
                self._files.append(path.open("wb"))
            # Offsets begin with 0, so that n + 1 of them delimit n sequences.
            self._files[1].write(np.zeros(1, OFFSETS).tobytes())
            return self
        for path, size in zip(self._paths, self._end, strict=True):
            file = path.open("r+b")
            file.truncate(size)
            file.seek(size)
            self._files.append(file)
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            file.close()

    def add(self, sentences: Encoded) -> None:
        """Append sequences. May be called many times."""
        ids, offsets = self._files
        written = ids.tell() // IDS.itemsize
        ids.write(sentences.ids.astype(IDS).tobytes())
        offsets.write((written + np.cumsum(sentences.lengths)).astype(OFFSETS).tobytes())

    def commit(self) -> tuple[int, int]:
        """Flush to the disk, and return the sizes of both files in bytes."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        ids, offsets = self._files
        return ids.tell(), offsets.tell()
