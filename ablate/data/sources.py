"""Sources of a split's text: records from files or generated; text_streams.py has streams.

A record has one text for each field. Every source yields `Document`s: records, or the documents of
a stream.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from ablate.config.data import TextFields
from ablate.data.io import bytes_hash, file_lines, suffix_of
from ablate.data.locations import Files, Location
from ablate.data.readers import csv_header, has_header, partial_header, read_rows
from ablate.data.trees import linearized, normalized, parse_brackets
from ablate.errors import DataError
from ablate.formatting import ellipsis, plural
from ablate.store.records import Origin

SHOWN = 60  # characters of a text or a header, in a message


class Document(NamedTuple):
    """A record, or a document of a stream or a piece of it.

    texts: text of each field. Texts of records are stripped, and may be empty.
    files: files of the texts: one file for all fields, or one for each field.
    number: number of the line or row in its file, from 1.
    begins: whether the text begins a document; False for a further piece of a document.
    """

    texts: tuple[str, ...]
    files: tuple[str, ...] = ()
    number: int = 0
    begins: bool = True

    def where(self, field: int) -> str:
        """File and line of a field, for messages."""
        return f"{self.files[min(field, len(self.files) - 1)]}:{self.number}"


@dataclass
class Source(ABC):
    """The documents of one split.

    location: where the text is.
    repaired: number of repairs in the last reading, by name of the repair.
    """

    location: Location
    repaired: Counter[str] = field(default_factory=Counter, init=False)

    @abstractmethod
    def documents(self) -> Iterator[Document]:
        """The documents in order.

        Raises:
            DataError: the content cannot be used; with file and line.
        """

    @abstractmethod
    def content(self) -> list[str]:
        """Hashes of the text, from which the id of the prepared corpus is computed."""

    def former_content(self) -> list[str]:
        """Hashes that versions before 2026-11-27 computed, from the bytes of a single file; empty
        if they equal `content`.
        """
        return []

    def column_order(self) -> str | None:
        """Say which column is read as which field; None if columns have names."""
        return None

    def settings(self) -> list[Any]:
        """Data settings on which the text depends."""
        return []

    def signature(self) -> list[Any]:
        """A value that changes with the content, computed without reading the text."""
        return [*self.settings(), *self.location.signature()]

    def origin(self) -> Origin:
        """Origin of the text for the manifest, without paths of this machine."""
        return self.location.origin()

    @property
    def is_local(self) -> bool:
        """Whether the files are given by path or address, so that the signature needs no Hub."""
        return isinstance(self.location, Files)


@dataclass
class ToyRecords(Source):
    """Records of the toy corpus, such as sentence pairs or trees.

    generate: generates the records of all splits.
    """

    split: str
    generate: Callable[[], Mapping[str, Sequence[tuple[str, ...]]]]

    def documents(self) -> Iterator[Document]:
        """The generated records."""
        for number, texts in enumerate(self.generate()[self.split], 1):
            yield Document(texts, (f"toy {self.split}",), number)

    def content(self) -> list[str]:
        """Name and version of the generator. Only train returns them, for all splits together."""
        return [str(self.location)] if self.split == "train" else []


@dataclass
class Aligned(Source):
    """Text files, one or several for each field; a line is a text.

    location: the files of the first field, then the files of the second, and so on. The n-th files
        of all fields have equally many lines.
    n_fields: number of fields.
    """

    n_fields: int

    def _files(self) -> list[list[str]]:
        """The files of each field."""
        paths = list(self.location.paths())
        count = len(paths) // self.n_fields
        return [paths[index * count : (index + 1) * count] for index in range(self.n_fields)]

    def documents(self) -> Iterator[Document]:
        """The n-th lines of all fields as a record.

        Raises:
            DataError: files have different numbers of lines, or a line is not text.
        """
        self.repaired.clear()
        for files in zip(*self._files(), strict=True):
            lines = [file_lines(file, self.repaired) for file in files]
            # zip_longest marks the end of a shorter file with None, where zip would drop lines.
            for number, texts in enumerate(zip_longest(*lines), 1):
                if None in texts:
                    raise DataError(_unequal(files))
                yield Document(tuple(text.strip() for text in texts), files, number)

    def content(self) -> list[str]:
        """The hash of the lines of each field, however they are divided into files."""
        return [hash_lines(*files) for files in self._files()]

    def former_content(self) -> list[str]:
        """The hash of the bytes of each field's file."""
        files = self._files()
        return [bytes_hash(path) for (path,) in files] if len(files[0]) == 1 else []


@dataclass
class Tables(Source):
    """Files with a column for each field, read one after another."""

    fields: TextFields

    def documents(self) -> Iterator[Document]:
        """The rows of all files, in order."""
        self.repaired.clear()
        for path in self.location.paths():
            for row, texts in read_rows(path, self.fields, self.repaired):
                yield Document(texts, (path,), row)

    def content(self) -> list[str]:
        """The hash of each field as lines of text, so that the same records in another format are
        the same corpus.

        A single TSV without chosen columns and without a header has the hash of its lines, as in
        the first version.
        """
        if plain := self._plain_tsv():
            return [hash_lines(plain)]
        digests = [hashlib.sha256() for _ in self.fields.names]
        for document in self.documents():
            for digest, text in zip(digests, document.texts, strict=True):
                digest.update(f"{text}\n".encode())
        return [digest.hexdigest() for digest in digests]

    def former_content(self) -> list[str]:
        """The hash of the bytes of a single TSV without chosen columns and without a header."""
        plain = self._plain_tsv()
        return [bytes_hash(plain)] if plain else []

    def _plain_tsv(self) -> str:
        """The path of a single TSV without chosen columns and without a header, or nothing."""
        first, *more = self.location.paths()
        is_plain = not more and self.fields.columns is None and suffix_of(first) == ".tsv"
        return first if is_plain and not has_header(first, self.fields) else ""

    def column_order(self) -> str | None:
        """Say which column is read as which field, if columns are taken by position: in a TSV
        without a header, and by number in a CSV file.
        """
        fields = self.fields
        columns = fields.columns or range(1, len(fields.names) + 1)
        have_names = any(isinstance(column, str) for column in columns)
        if have_names or not self.is_local or len(fields.names) == 1:
            return None
        path = next(self.location.paths())
        if suffix_of(path) == ".tsv" and not has_header(path, fields):
            header = "no header"
            present, absent = partial_header(path, fields)
            if present:
                header = (
                    f'WARNING: the first line has the name "{present}" and no "{absent}", so it is '
                    f"read as a record; write both names, or remove the line"
                )
        elif suffix_of(path) == ".csv" and fields.columns:
            cells = ellipsis(", ".join(csv_header(path)), SHOWN)
            header = f'the first row, "{cells}", is the header'
        else:
            return None
        pairs = zip(fields.labels, columns, strict=True)
        order = ", ".join(f"{label} is column {column}" for label, column in pairs)
        return f"{header}; {order}"

    def settings(self) -> list[Any]:
        """The chosen columns, as JSON stores them."""
        columns = self.fields.columns
        return [None if columns is None else list(columns)]


@dataclass
class Treebank(Source):
    """Files of trees in brackets: sentences, and their linearized trees with tags."""

    def documents(self) -> Iterator[Document]:
        """(sentence, linearized tree) of each tree. Trees without words are skipped and counted."""
        self.repaired.clear()
        for path in self.location.paths():
            for line, tree in parse_brackets(file_lines(path, self.repaired), path):
                reduced = normalized(tree)
                if reduced is None:
                    self.repaired["tree without words"] += 1
                    continue
                sentence = " ".join(leaf.word for leaf in reduced.leaves())
                yield Document((sentence, linearized(reduced)), (path,), line)

    def content(self) -> list[str]:
        """The hash of sentences and trees, however they are divided into files."""
        return [_hash(text for document in self.documents() for text in document.texts)]


def hash_lines(*files: str) -> str:
    """SHA-256 of the lines of files after decompression, with LF as the end of every line."""
    return _hash(chain.from_iterable(file_lines(file, Counter()) for file in files))


def _hash(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _unequal(files: Sequence[str]) -> str:
    """Error message for files with different numbers of lines; counts the lines of each."""
    counts = {}
    for file in files:
        counts[file] = sum(1 for _ in file_lines(file, Counter()))
    short = min(files, key=counts.__getitem__)
    long = max(files, key=counts.__getitem__)
    return (
        f"{short}: has {plural(counts[short], 'line')}, but {long} has {counts[long]:,}; each line "
        f"needs its counterpart"
    )
