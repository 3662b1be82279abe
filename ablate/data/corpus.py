"""A prepared corpus: memory-mapped ids of every split, the tokenizer, and what is known about it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ablate.config.cost import Lengths
from ablate.data.encoding import IDS, Encoded
from ablate.data.tokenizer import Tokenizer
from ablate.errors import Damaged, StoreError
from ablate.store.corpora import MANIFEST
from ablate.store.files import read_json, verify

FORMAT = 2  # raised when the same text would be prepared otherwise, or kept otherwise
OFFSETS = np.dtype("<i8")
SIDES = ("source", "target")
TOKENIZER = "tokenizer.model"  # of both sides, or of the target
SOURCE_TOKENIZER = f"source.{TOKENIZER}"  # where each side has a vocabulary of its own
LARGE = 64 << 20  # bytes: hashing more would keep a run waiting
_SUBSET_KEY = 20170612


@dataclass
class Sums:
    """Sums over pairs of their lengths, the end mark counted, added up as they come."""

    pairs: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    longer_tokens: int = 0
    source_squares: int = 0
    products: int = 0
    target_squares: int = 0
    longest: int = 0

    def add(self, lengths: NDArray[np.integer[Any]]) -> None:
        """Further pairs, (2, pairs)."""
        S, T = lengths.astype(np.int64)  # of squares
        self.pairs += len(S)
        self.source_tokens += int(S.sum())
        self.target_tokens += int(T.sum())
        self.longer_tokens += int(np.maximum(S, T).sum())
        self.source_squares += int((S * S).sum())
        self.products += int((S * T).sum())
        self.target_squares += int((T * T).sum())
        self.longest = max(self.longest, int(lengths.max(initial=0)))

    def lengths(self) -> Lengths:
        """What costs are reckoned from."""
        sums = asdict(self)
        del sums["longest"]
        return Lengths(**sums)


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
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each sentence, the end mark counted."""
        # Offsets beyond 32 bits wrap, and their differences wrap back.
        lengths = np.subtract(self.offsets[1:], self.offsets[:-1], dtype=np.int32, casting="unsafe")
        lengths += 1
        return lengths


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


def subset(pairs: int, fraction: float) -> NDArray[np.int64]:
    """The pairs of a share of the training side, in order: a smaller share's are among a larger one's.

    The same for every seed of a study: what is compared is how much there is to learn from, and not which.
    """
    if fraction == 1:
        return np.arange(pairs)
    ranks = np.random.Generator(np.random.Philox(key=_SUBSET_KEY)).random(pairs)
    return np.sort(np.argsort(ranks, kind="stable")[: max(1, round(fraction * pairs))])


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
        if manifest.get("format") != FORMAT:
            raise StoreError(
                f"{folder}: has format {manifest.get('format')}, and this ablate reads {FORMAT}; remove it"
            )
        self.folder = folder
        self.manifest: dict[str, Any] = manifest
        self.lengths = Lengths(**manifest["lengths"])

    @property
    def id(self) -> str:
        """The hash of the corpus' content."""
        return self.folder.name

    @property
    def training(self) -> str:
        """The hash of what a run is trained and measured on: all but the test side, and the vocabulary."""
        return str(self.manifest["training"])

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary of the target, and of the source too unless it has its own."""
        return Tokenizer((self.folder / TOKENIZER).read_bytes())

    @cached_property
    def source_tokenizer(self) -> Tokenizer:
        """The vocabulary of the source."""
        own = self.folder / SOURCE_TOKENIZER
        return Tokenizer(own.read_bytes()) if own.exists() else self.tokenizer

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

    def verify(self, every: bool = False) -> None:
        """Compare files with the hashes taken when they were written.

        Args:
            every: also large ones, of which otherwise only the size is compared with what it was then.

        Raises:
            Damaged: naming the first that differs.
            StoreError: one cannot be read.
        """
        sizes = self.manifest.get("sizes", {})
        for name, expected in self.manifest["files"].items():
            if name != Path(name).name:
                raise Damaged(f"{self.folder / MANIFEST}: names a file outside of its folder")
            path = self.folder / name
            known = path.exists() and name in sizes and path.stat().st_size == sizes[name] > LARGE
            if not known or every:
                verify(path, expected)

    def _side(self, split: str, side: str) -> Side:
        path = self.folder / f"{split}.{side}.ids"
        ids = np.memmap(path, dtype=IDS, mode="r") if path.stat().st_size else np.empty(0, IDS)
        return Side(ids, np.memmap(path.with_suffix(".offsets"), dtype=OFFSETS, mode="r"))


class SideWriter:
    """Writes one side of a split as it comes: ids, and where each sentence begins."""

    def __init__(self, folder: Path, split: str, side: str, end: Sequence[int] | None = None) -> None:
        """Begin, or go on after what a commit has returned."""
        self._paths = [folder / f"{split}.{side}.{kind}" for kind in ("ids", "offsets")]
        self._files: list[BinaryIO] = []
        self._end = end

    def __enter__(self) -> SideWriter:
        for path, size in zip(self._paths, self._end or (None, None), strict=True):
            if size is None:
                path.unlink(missing_ok=True)  # it may be another corpus' file too
            file = path.open("wb" if size is None else "r+b")
            if size is not None:
                file.truncate(size)
                file.seek(size)
            self._files.append(file)
        if self._end is None:
            self._files[1].write(np.zeros(1, OFFSETS).tobytes())
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            file.close()

    def add(self, sentences: Encoded) -> None:
        """Further sentences."""
        ids, offsets = self._files
        before = ids.tell() // IDS.itemsize
        ids.write(sentences.ids.astype(IDS).tobytes())
        offsets.write((before + np.cumsum(sentences.lengths)).astype(OFFSETS).tobytes())

    def commit(self) -> list[int]:
        """Wait until all is on the disk; the files' sizes."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        return [file.tell() for file in self._files]
