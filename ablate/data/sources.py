"""The documents of a split: records of texts, or a stream of text, read from files or generated.

A record is a text for each field; a document of a language model is one text, which keeps every
character and comes in pieces of about a megabyte.
"""

from __future__ import annotations

import codecs
import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from ablate.config.data import TextFields
from ablate.config.language_data import LanguageData
from ablate.data import toy
from ablate.data.io import BLOCK, bytes_hash, open_bytes, readable
from ablate.data.locations import Files, Location
from ablate.data.readers import (
    TABLES,
    csv_header,
    file_lines,
    has_header,
    read_rows,
    read_values,
    suffix_of,
)
from ablate.data.trees import linearized, normalized, parse_brackets
from ablate.errors import DataError
from ablate.formatting import ellipsis, plural
from ablate.store.records import Origin

SHOWN = 60  # characters of a text or a header, in a message
_ROUNDING = 1e-9  # of sums of shares


class Document(NamedTuple):
    """A document, or a part of one.

    texts: of each field. Those of a record are stripped, and may be empty.
    files: that it was read from: one for all fields, or one for each.
    number: of its line or row there, from 1.
    begins: whether a document begins here; otherwise this is a further part of it.
    """

    texts: tuple[str, ...]
    files: tuple[str, ...] = ()
    number: int = 0
    begins: bool = True

    def where(self, field: int) -> str:
        """File and line of one field, for messages."""
        return f"{self.files[min(field, len(self.files) - 1)]}:{self.number}"


@dataclass
class Source(ABC):
    """The documents of one split.

    location: of its files.
    repaired: repairs made by the last reading, by name.
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
        """Hashes of the text, which the id of the prepared corpus is made from."""

    def former_content(self) -> list[str]:
        """The hashes of versions before 2026-11-27, which took the bytes of a single file; empty
        where they are those of `content`.
        """
        return []

    def column_order(self) -> str | None:
        """Says which column is read as which field, for files without column names; else None."""
        return None

    def settings(self) -> list[Any]:
        """Settings that the text depends on, beside the files."""
        return []

    def signature(self) -> list[Any]:
        """A value that changes with the content, known without reading it."""
        return [*self.settings(), *self.location.signature()]

    def origin(self) -> Origin:
        """Origin of the text for the manifest, without paths of this machine."""
        return self.location.origin()


# Records


@dataclass
class Generated(Source):
    """Records of a generator, such as the pairs of the toy corpus."""

    split: str
    generate: Callable[[], Mapping[str, Sequence[tuple[str, ...]]]]

    def documents(self) -> Iterator[Document]:
        """The generated records."""
        name = (f"{str(self.location).split()[0]} {self.split}",)
        for number, texts in enumerate(self.generate()[self.split], 1):
            yield Document(texts, name, number)

    def content(self) -> list[str]:
        """The generator's version; given by one split for the whole corpus."""
        return [str(self.location)] if self.split == "train" else []


@dataclass
class Aligned(Source):
    """Text files, one or several per field, which are read one after another; a line is a text.

    location: the files of the first field, then those of the next; the n-th files of all fields
        have equally many lines.
    fields: their number.
    """

    fields: int

    def _files(self) -> list[list[str]]:
        """The files of each field."""
        paths = list(self.location.paths())
        count = len(paths) // self.fields
        return [paths[index * count : (index + 1) * count] for index in range(self.fields)]

    def documents(self) -> Iterator[Document]:
        """The n-th lines of all fields together.

        Raises:
            DataError: files have different numbers of lines, or a line is not text.
        """
        self.repaired.clear()
        for files in zip(*self._files(), strict=True):
            lines = [file_lines(file, self.repaired) for file in files]
            # zip_longest marks the end of a shorter file with None, where zip would drop the rest.
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
    """Files with a column per field, read one after another."""

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
        """Says which column is read as which field, by the direction or by settings."""
        fields = self.fields
        if not isinstance(self.location, Files) or len(fields.names) == 1:
            return None
        columns = fields.columns or range(1, len(fields.names) + 1)
        first = next(self.location.paths())
        header = "no header"
        if suffix_of(first) == ".csv" and fields.columns:
            cells = ellipsis(", ".join(csv_header(first)), SHOWN)
            header = f'the first row, "{cells}", is the header'
        elif suffix_of(first) != ".tsv" or has_header(first, fields):
            return None
        if any(isinstance(column, str) for column in columns):
            return None
        pairs = zip(fields.labels, columns, strict=True)
        order = ", ".join(f"{label} is column {column}" for label, column in pairs)
        return f"{header}; {order}"

    def settings(self) -> list[Any]:
        """The columns, as JSON stores them."""
        columns = self.fields.columns
        return [columns and list(columns)]


@dataclass
class Treebank(Source):
    """Files of trees in brackets: sentences, and their linearized trees with tags."""

    def documents(self) -> Iterator[Document]:
        """The sentences and `trees.normalized`; trees without words are counted."""
        self.repaired.clear()
        for path in self.location.paths():
            for line, tree in parse_brackets(file_lines(path, self.repaired), path):
                kept = normalized(tree)
                if kept is None:
                    self.repaired["tree without words"] += 1
                    continue
                sentence = " ".join(leaf.word for leaf in kept.leaves())
                yield Document((sentence, linearized(kept)), (path,), line)

    def content(self) -> list[str]:
        """The hash of sentences and trees, however they are divided into files."""
        return [_hash(text for document in self.documents() for text in document.texts)]


def hash_lines(*files: str) -> str:
    """SHA-256 of the lines of files after decompression, each with LF, however it ends there."""
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
        f"{short}: has {plural(counts[short], 'line')}, but {long} has {counts[long]}; each line "
        f"needs its counterpart"
    )


# A stream


@dataclass
class TextStream(Source):
    """Documents of one text each, of which every character counts."""

    def content(self) -> list[str]:
        """The hash of the text and of where its documents begin, however it is divided."""
        digest = hashlib.sha256()
        for (text,), _, _, begins in self.documents():
            digest.update(b"\x00" * begins + text.encode())  # a text contains no NUL
        return [digest.hexdigest()]


@dataclass
class GeneratedText(TextStream):
    """A split of the toy text: the English sentences of the toy corpus, one per line."""

    split: str

    def documents(self) -> Iterator[Document]:
        """The sentences as one document."""
        yield Document(("".join(f"{source}.\n" for source, _ in toy.generate()[self.split]),))


@dataclass
class TextFiles(TextStream):
    """Text files, each a document, or tables with a column of text, read one after another.

    data: names the column, and says whether a row is a document.
    """

    data: LanguageData

    def documents(self) -> Iterator[Document]:
        """The text of all files. A file's ending names its format; any other is a text file."""
        for path in self.location.paths():
            if suffix_of(path) not in TABLES:
                for part, text in enumerate(_read_text(path)):
                    yield Document((text,), begins=part == 0)
                continue
            for row, texts in enumerate(read_values(path, self.data.text_fields, Counter())):
                yield Document(texts, begins=row == 0 or self.data.rows == "documents")

    def settings(self) -> list[Any]:
        """The column."""
        return [self.data.column]


@dataclass
class SentencePairs(TextStream):
    """Pairs of sentences in a table, as in BLiMP: good and bad ones in turn, each a document."""

    def documents(self) -> Iterator[Document]:
        """The sentences.

        Raises:
            DataError: one is empty.
        """
        columns = ("sentence_good", "sentence_bad")
        fields = TextFields(columns, columns, columns)
        for path in self.location.paths():
            for row, texts in read_rows(path, fields, Counter()):
                for name, text in zip(columns, texts, strict=True):
                    if not text:
                        raise DataError(f"{path}:{row}: {name} is empty")
                    yield Document((text,), (path,), row)


@dataclass
class StreamPart(TextStream):
    """A part of another stream, by shares of its characters from `first` to `last`.

    max_bytes: only the beginning of the whole counts, of at most so many bytes of UTF-8.
    """

    whole: Source
    first: float = 0.0
    last: float = 1.0
    max_bytes: int | None = None
    _characters: int | None = field(default=None, init=False)  # of the whole, once counted

    def documents(self) -> Iterator[Document]:
        """The text of the part. It begins a document, even in the middle of one."""
        low, high = self._limits()
        position = 0
        started = False
        for text, begins in self._beginning():
            end = position + len(text)
            if end > low and position < high:
                kept = text[max(0, low - position) : high - position]
                yield Document((kept,), begins=begins or not started)
                started = True
            position = end
            if position >= high:
                return

    def _limits(self) -> tuple[int, int]:
        """The first character, and the one after the last."""
        if self.first == 0.0 and self.last == 1.0:
            # The whole text: no characters are counted, since that would read all of it once more.
            return 0, 1 << 62
        if self._characters is None:
            self._characters = sum(len(text) for text, _ in self._beginning())
        total = self._characters
        high = int(total * self.last)
        if self.last > 1 - _ROUNDING:  # the end of the text, however its share was rounded
            high = total
        return int(total * self.first), high

    def _beginning(self) -> Iterator[tuple[str, bool]]:
        """The texts of the whole up to its limit of bytes, and whether each begins a document."""
        left = self.max_bytes
        begins = False
        for document in self.whole.documents():
            (text,) = document.texts
            if left is None:
                yield text, document.begins
                continue
            begins |= document.begins
            content = text.encode()[:left]
            left -= len(content)
            text = content.decode(errors="ignore")  # of a character that is cut, nothing is left
            if text:
                yield text, begins
                begins = False  # a document that begins with an empty part begins with the next one
            if left <= 0:
                return

    def signature(self) -> list[Any]:
        """The part, and the signature of the whole."""
        return [self.first, self.last, self.max_bytes, self.whole.signature()]

    def origin(self) -> Origin:
        """The origin of the whole, and the part."""
        origin = self.whole.origin().updated(part=(round(self.first, 6), round(self.last, 6)))
        if self.max_bytes is None:
            return origin
        return origin.updated(max_bytes=self.max_bytes)


def is_local(source: Source) -> bool:
    """Whether a source's files are there, so that its signature needs no network."""
    return isinstance(source.location, Files)


def _read_text(path: str) -> Iterator[str]:
    """The text of a file in pieces, without a byte-order mark; line ends are kept as they are.

    Raises:
        DataError: the text is not UTF-8 or holds a NUL byte; with file and line.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    kept = ""
    first = True
    with readable(path), open_bytes(path) as stream:
        while True:
            block = stream.read(BLOCK)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                faulty = line + error.object[: error.start].count(b"\n")
                raise DataError(f"{path}:{faulty}: is not valid UTF-8") from None
            if "\0" in text:
                faulty = line + text.count("\n", 0, text.index("\0"))
                raise DataError(f"{path}:{faulty}: contains a NUL byte: not text")
            line += text.count("\n")
            if first:
                text = text.removeprefix("\ufeff")
                first = False
            kept += text
            if not block:
                break
            cut = _word_end(kept)
            if cut:
                yield kept[:cut]
                kept = kept[cut:]
    if kept:
        yield kept


def _word_end(text: str) -> int:
    """The last place at which a cut changes no token: after a line end, or before a space."""
    return max(text.rfind("\n") + 1, text.rfind(" "), 0) or len(text)
