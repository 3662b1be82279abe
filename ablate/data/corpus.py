"""A prepared corpus: memory-mapped ids of every split, the tokenizer, and what is known about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.cost import Lengths
from ablate.data.tokenizer import Tokenizer
from ablate.errors import Damaged, StoreError
from ablate.store.corpora import MANIFEST
from ablate.store.files import read_json, verify, write_bytes

FORMAT = 1  # raised when the same text would be prepared otherwise
IDS = np.dtype("<u4")
OFFSETS = np.dtype("<i8")
SIDES = ("source", "target")
TOKENIZER = "tokenizer.model"


def lengths_of(S: NDArray[np.int64], T: NDArray[np.int64]) -> Lengths:
    """The sums over pairs of these lengths."""
    sums = (S.sum(), T.sum(), np.maximum(S, T).sum(), (S * S).sum(), (S * T).sum(), (T * T).sum())
    return Lengths(len(S), *(int(n) for n in sums))


@dataclass(frozen=True)
class Side:
    """One side of a split: every sentence's ids behind one another, and where each begins."""

    ids: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, sentence: int) -> NDArray[np.uint32]:
        return self.ids[self.offsets[sentence] : self.offsets[sentence + 1]]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sentence, the end mark counted."""
        return np.diff(self.offsets) + 1


@dataclass(frozen=True)
class Split:
    """Both sides of a split, without begin and end marks."""

    source: Side
    target: Side

    def __len__(self) -> int:
        return len(self.source)

    def first(self, pairs: int) -> Split:
        """The split's first pairs."""
        return Split(*(Side(side.ids, side.offsets[: pairs + 1]) for side in (self.source, self.target)))


class Corpus:
    """A prepared corpus on disk."""

    def __init__(self, folder: Path) -> None:
        """Open a corpus that `prepare` has made.

        Raises:
            Damaged: what describes it is not what was written.
            StoreError: it is not there, or of another version.
        """
        manifest = read_json(folder / MANIFEST)
        if manifest is None:
            raise StoreError(f"{folder}: holds no prepared corpus")
        if manifest["format"] != FORMAT:
            raise StoreError(f"{folder}: has format {manifest['format']}, and this ablate reads {FORMAT}; remove it")
        self.folder = folder
        self.manifest: dict[str, Any] = manifest
        self.lengths = Lengths(**manifest["lengths"])

    @property
    def id(self) -> str:
        """The hash of the corpus' content."""
        return self.folder.name

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary."""
        return Tokenizer((self.folder / TOKENIZER).read_bytes())

    def split(self, name: str) -> Split:
        """`train`, `dev` or `test`, memory-mapped."""
        return Split(*(self._side(name, side) for side in SIDES))

    def references(self) -> list[str]:
        """The test side's target text, as it stands in the corpus."""
        return self.text("test", "target")

    def text(self, split: str, side: str) -> list[str]:
        """The sentences of one side of dev or test."""
        lines = (self.folder / f"{split}.{side}.txt").read_bytes().decode()  # only LF ends one, as when they were read
        return lines.split("\n")[:-1]

    def verify(self) -> None:
        """Compare every file with the hash taken when it was written.

        Raises:
            Damaged: naming the first that differs.
            StoreError: one cannot be read.
        """
        for name, expected in self.manifest["files"].items():
            if name != Path(name).name:
                raise Damaged(f"{self.folder / MANIFEST}: names a file outside of its folder")
            verify(self.folder / name, expected)

    def _side(self, split: str, side: str) -> Side:
        offsets = np.fromfile(self.folder / f"{split}.{side}.offsets", dtype=OFFSETS)
        path = self.folder / f"{split}.{side}.ids"
        ids = np.memmap(path, dtype=IDS, mode="r") if path.stat().st_size else np.empty(0, IDS)
        return Side(ids, offsets)


def write_side(folder: Path, split: str, side: str, sentences: Sequence[Sequence[int]]) -> None:
    """Write one side of a split as ids and offsets."""
    offsets = np.zeros(len(sentences) + 1, dtype=OFFSETS)
    np.cumsum([len(sentence) for sentence in sentences], out=offsets[1:])
    ids = np.fromiter((token for sentence in sentences for token in sentence), dtype=IDS, count=int(offsets[-1]))
    write_bytes(folder / f"{split}.{side}.ids", ids.tobytes())
    write_bytes(folder / f"{split}.{side}.offsets", offsets.tobytes())
