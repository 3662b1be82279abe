"""Sources of a language model's text: a stream of documents, of which every character is kept.

Long documents come in pieces of about a megabyte.
"""

from __future__ import annotations

import codecs
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ablate.config.data import TextFields
from ablate.config.language_data import LanguageData
from ablate.data import toy
from ablate.data.io import BLOCK, not_utf8, open_bytes, readable, suffix_of
from ablate.data.readers import TABLES, read_rows, read_values
from ablate.data.sources import Document, Source
from ablate.errors import DataError
from ablate.store.records import Origin

_ROUNDING = 1e-9  # of sums of shares


@dataclass
class TextStream(Source):
    """Documents of one text each."""

    def content(self) -> list[str]:
        """The hash of the text and of the beginnings of documents, however files divide it."""
        digest = hashlib.sha256()
        for document in self.documents():
            if document.begins:
                digest.update(b"\0")  # marks the beginning of a document; no text contains NUL
            digest.update(document.texts[0].encode())
        return [digest.hexdigest()]


@dataclass
class ToyText(TextStream):
    """A split of the toy text: the English sentences of the toy corpus, one on each line."""

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
                for piece, text in enumerate(_read_text(path)):
                    yield Document((text,), begins=piece == 0)
                continue
            for row, texts in enumerate(read_values(path, self.data.text_fields, Counter())):
                yield Document(texts, begins=row == 0 or self.data.rows == "documents")

    def settings(self) -> list[Any]:
        """The column."""
        return [self.data.column]


@dataclass
class SentencePairs(TextStream):
    """Minimal pairs in a table, as in BLiMP: the good, then the bad sentence of each pair. A
    sentence is a document.
    """

    def documents(self) -> Iterator[Document]:
        """The sentences.

        Raises:
            DataError: a sentence is empty.
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
    """A part of another stream.

    stream: the other stream.
    first, last: begin and end of the part, as shares of the characters of the stream.
    max_bytes: use only the first `max_bytes` bytes of UTF-8 of the stream; None for all.
    """

    stream: Source
    first: float = 0.0
    last: float = 1.0
    max_bytes: int | None = None
    _characters: int | None = field(default=None, init=False)  # of the stream, once counted

    def documents(self) -> Iterator[Document]:
        """The text of the part. It begins a document, even in the middle of one."""
        low, high = self._limits()
        position = 0
        started = False
        for text, begins in self._pieces():
            end = position + len(text)
            if end > low and position < high:
                inside = text[max(0, low - position) : high - position]
                yield Document((inside,), begins=begins or not started)
                started = True
            position = end
            if position >= high:
                return

    def _limits(self) -> tuple[int, int]:
        """Index of the first character of the part, and of the character after its last."""
        if self.first == 0.0 and self.last == 1.0:
            # The whole stream: to count its characters would read all of it once more.
            return 0, 1 << 62
        if self._characters is None:
            self._characters = sum(len(text) for text, _ in self._pieces())
        total = self._characters
        high = int(total * self.last)
        if self.last > 1 - _ROUNDING:  # the end of the text, however its share was rounded
            high = total
        return int(total * self.first), high

    def _pieces(self) -> Iterator[tuple[str, bool]]:
        """The texts of the stream up to `max_bytes`, and whether each begins a document."""
        if self.max_bytes is None:
            for document in self.stream.documents():
                yield document.texts[0], document.begins
            return
        bytes_left = self.max_bytes
        begins = False
        for document in self.stream.documents():
            begins |= document.begins
            content = document.texts[0].encode()[:bytes_left]
            bytes_left -= len(content)
            text = content.decode(errors="ignore")  # drops a character that the limit cuts in two
            if text:
                yield text, begins
                begins = False  # after an empty first piece, the next piece begins the document
            if bytes_left <= 0:
                return

    def signature(self) -> list[Any]:
        """The part, and the signature of the stream."""
        return [self.first, self.last, self.max_bytes, self.stream.signature()]

    def origin(self) -> Origin:
        """The origin of the stream, and the part."""
        origin = self.stream.origin().model_copy(
            update={"part": (round(self.first, 6), round(self.last, 6))}
        )
        if self.max_bytes is None:
            return origin
        return origin.model_copy(update={"max_bytes": self.max_bytes})


def _read_text(path: str) -> Iterator[str]:
    """The text of a file in pieces, without a byte-order mark and with its line ends.

    Raises:
        DataError: the text is not UTF-8 or contains a NUL byte; with file and line.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    text = ""  # read and not yielded
    is_first = True
    with readable(path), open_bytes(path) as stream:
        while True:
            block = stream.read(BLOCK)
            try:
                decoded = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                faulty = line + error.object[: error.start].count(b"\n")
                raise not_utf8(f"{path}:{faulty}") from None
            if "\0" in decoded:
                faulty = line + decoded.count("\n", 0, decoded.index("\0"))
                raise DataError(f"{path}:{faulty}: contains a NUL byte: not text")
            line += decoded.count("\n")
            if is_first:
                decoded = decoded.removeprefix("\ufeff")
                is_first = False
            text += decoded
            if not block:
                break
            cut = _last_cut(text)
            if cut:
                yield text[:cut]
                text = text[cut:]
    if text:
        yield text


def _last_cut(text: str) -> int:
    """The last place at which a cut changes no token: after a line end or before a space; the end
    of a text without either.
    """
    return max(text.rfind("\n") + 1, text.rfind(" "), 0) or len(text)
