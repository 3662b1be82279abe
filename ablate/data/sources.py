"""Where a split's sentence pairs come from: one small interface over files, generated and downloaded corpora."""

from __future__ import annotations

import bisect
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, Protocol

from ablate.data import toy
from ablate.data.columns import Names, Row, read_rows, suffix_of
from ablate.data.io import signature, text_hash
from ablate.data.lines import read_lines
from ablate.errors import DataError


class Source(Protocol):
    """The sentence pairs of a split."""

    repaired: Counter[str]  # what was mended in the last reading, by name

    def pairs(self) -> Iterator[Row]:
        """(number from 1, source, target); sides are stripped, and may be empty.

        Raises:
            DataError: something in the files cannot be used, with file and line.
        """

    def where(self, number: int, side: int) -> str:
        """The file and line of a pair that was read."""

    def content(self) -> list[str]:
        """Hashes of its text: what the identity of a prepared corpus is made of."""

    def signature(self) -> list[Any]:
        """What changes when the content does, known at once."""

    def files(self) -> tuple[str, ...]:
        """Its files, for people."""

    def about(self) -> dict[str, Any]:
        """Where it is from, without any path of this machine."""


@dataclass
class Generated:
    """A split of the toy corpus."""

    split: str
    repaired: Counter[str] = field(default_factory=Counter)

    def pairs(self) -> Iterator[Row]:
        """As they are generated."""
        return ((number, *pair) for number, pair in enumerate(toy.generate()[self.split], 1))

    def where(self, number: int, side: int) -> str:
        """Its number."""
        return f"toy {self.split}:{number}"

    def content(self) -> list[str]:
        """The generator's version, once for the whole corpus."""
        return [f"toy {toy.VERSION}"] if self.split == "train" else []

    def signature(self) -> list[Any]:
        """The generator's version."""
        return ["toy", toy.VERSION]

    def files(self) -> tuple[str, ...]:
        """None."""
        return ()

    def about(self) -> dict[str, Any]:
        """The generator's version."""
        return {"generated": f"toy {toy.VERSION}"}


@dataclass
class Aligned:
    """Lines of text in two files, or in as many for each side, line by line."""

    sides: tuple[Sequence[str], Sequence[str]]
    repaired: Counter[str] = field(default_factory=Counter)
    _starts: list[int] = field(default_factory=list)  # pairs before each file that was opened

    def pairs(self) -> Iterator[Row]:
        """Line by line; files that pair must have equally many."""
        self.repaired.clear()
        self._starts.clear()
        number = 0
        for files in zip(*self.sides, strict=True):
            self._starts.append(number)
            lines = (read_lines(file, self.repaired) for file in files)
            for source, target in zip_longest(*lines):
                number += 1
                if source is None or target is None:
                    raise DataError(_unequal(files))
                yield number, source.strip(), target.strip()

    def where(self, number: int, side: int) -> str:
        """The file and line of this side."""
        place = bisect.bisect_left(self._starts, number) - 1
        return f"{self.sides[side][place]}:{number - self._starts[place]}"

    def content(self) -> list[str]:
        """The hash of each side's text."""
        return [_text_hash(files) for files in self.sides]

    def signature(self) -> list[Any]:
        """Of each file."""
        return [signature(file) for file in self.files()]

    def files(self) -> tuple[str, ...]:
        """Both sides' files."""
        return tuple(chain(*self.sides))

    def about(self) -> dict[str, Any]:
        """The files' names."""
        return {"files": [_name(file) for file in self.files()]}


@dataclass
class Tables:
    """Rows with a column for each side, in one file or several."""

    paths: Sequence[str]
    names: Names | None
    languages: tuple[str, str]
    repaired: Counter[str] = field(default_factory=Counter)
    _starts: list[int] = field(default_factory=list)

    def pairs(self) -> Iterator[Row]:
        """Row by row, file after file."""
        self.repaired.clear()
        self._starts.clear()
        before = number = 0
        for path in self.paths:
            self._starts.append(before)
            for row, source, target in read_rows(path, self.names, self.languages, self.repaired):
                number = before + row
                yield number, source, target
            before = max(before, number)

    def where(self, number: int, side: int) -> str:
        """The file and row of a pair."""
        place = bisect.bisect_left(self._starts, number) - 1
        return f"{self.paths[place]}:{number - self._starts[place]}"

    def content(self) -> list[str]:
        """The hash of each side as lines of text, so that the same pairs in other containers are the same corpus.

        A single TSV of two columns is known by its own text, as it always was.
        """
        if len(self.paths) == 1 and self.names is None and suffix_of(self.paths[0]) == ".tsv":
            return [text_hash(self.paths[0])]
        digests = (hashlib.sha256(), hashlib.sha256())
        for path in self.paths:
            for _, *pair in read_rows(path, self.names, self.languages, Counter()):
                for digest, text in zip(digests, pair, strict=True):
                    digest.update(f"{text}\n".encode())
        return [digest.hexdigest() for digest in digests]

    def signature(self) -> list[Any]:
        """Of each file, and the columns taken."""
        return [self.names, *(signature(path) for path in self.paths)]

    def files(self) -> tuple[str, ...]:
        """The files."""
        return tuple(self.paths)

    def about(self) -> dict[str, Any]:
        """The files' names."""
        return {"files": [_name(file) for file in self.paths]}


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _text_hash(files: Sequence[str]) -> str:
    if len(files) == 1:
        return text_hash(files[0])
    digest = hashlib.sha256()
    for file in files:
        for line in read_lines(file, Counter()):
            digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _unequal(files: tuple[str, str]) -> str:
    counts = [sum(1 for _ in read_lines(file, Counter())) for file in files]
    short, long = (0, 1) if counts[0] < counts[1] else (1, 0)
    return f"{files[short]}: has {counts[short]} lines, but {files[long]} has {counts[long]}: they must pair"
