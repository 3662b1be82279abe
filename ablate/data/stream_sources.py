"""Sources of a stream of documents, for language models: text files, tables, the Hub, the generated
text.

A text keeps every character. It comes in pieces of about a megabyte; a document is one piece or
several.
"""

from __future__ import annotations

import codecs
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ablate.config.data import FILES, HubData, TextFields
from ablate.config.language_data import SAME_AS_DEV, LanguageData, share_of
from ablate.data import toy
from ablate.data.hub import Repository, repository_of
from ablate.data.io import (
    BLOCK,
    files_in,
    is_address,
    is_file,
    joined,
    missing,
    open_bytes,
    readable,
    signature,
)
from ablate.data.readers import SUFFIXES, read_values, suffix_of
from ablate.errors import DataError, did_you_mean, listed
from ablate.store.records import Origin

TEXT_SUFFIX = ".txt"
_ROUNDING = 1e-9  # of sums of shares
_TABLES = tuple(suffix for suffix in SUFFIXES if suffix != ".tsv")


class Piece(NamedTuple):
    """A part of a document; `begins`: its first part."""

    text: str
    begins: bool


class StreamSource(Protocol):
    """The documents of one split."""

    def pieces(self) -> Iterator[Piece]:
        """The text in order.

        Raises:
            DataError: the content cannot be used; with file and line.
        """

    def content(self) -> list[str]:
        """The hash of the text, which the id of the prepared corpus is made from."""

    def signature(self) -> list[Any]:
        """A value that changes with the content, known without reading it."""

    def files(self) -> tuple[str, ...]:
        """Paths of the files, for messages."""

    def origin(self) -> Origin:
        """Origin of the text for the manifest, without paths of this machine."""


class _Hashed:
    """Hashes the text and the beginnings of its documents."""

    def pieces(self) -> Iterator[Piece]:
        """The text in order."""
        raise NotImplementedError

    def content(self) -> list[str]:
        """The hash of all pieces; where a document is divided does not change it."""
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(b"\x00" * piece.begins + piece.text.encode())  # a text contains no NUL
        return [digest.hexdigest()]


@dataclass
class GeneratedStream(_Hashed):
    """A split of the toy text: the English sentences of the toy corpus, one per line."""

    split: str

    def pieces(self) -> Iterator[Piece]:
        """The sentences as one document."""
        yield Piece(
            "".join(f"{source}.\n" for source, _ in toy.generate()[self.split]), begins=True
        )

    def signature(self) -> list[Any]:
        """The generator's version."""
        return ["toy text", toy.VERSION, self.split]

    def files(self) -> tuple[str, ...]:
        """No files."""
        return ()

    def origin(self) -> Origin:
        """The generator's version."""
        return Origin(generated=f"toy {toy.VERSION}")


@dataclass
class FileStream(_Hashed):
    """Text files, each a document, or tables with a column of text, read one after another.

    paths: of the files.
    data: names the column, and says whether a row is a document.
    """

    paths: Sequence[str]
    data: LanguageData

    def pieces(self) -> Iterator[Piece]:
        """The text of all files."""
        return chain.from_iterable(_pieces_of(path, self.data) for path in self.paths)

    def signature(self) -> list[Any]:
        """The column, and the signature of each file."""
        return [self.data.column, *(signature(path) for path in self.paths)]

    def files(self) -> tuple[str, ...]:
        """The files."""
        return tuple(self.paths)

    def origin(self) -> Origin:
        """Names of the files."""
        return Origin(files=tuple(path.rpartition("/")[2] for path in self.paths))


@dataclass
class HubStream(_Hashed):
    """A split of a data set on the Hub; a file is downloaded when its text is needed."""

    repository: Repository
    prefix: str  # of the names of the split's files
    data: LanguageData

    def pieces(self) -> Iterator[Piece]:
        """The text of all files."""
        for file in self.repository.files(self.prefix):
            for path in self.repository.download([file]):
                yield from _pieces_of(path, self.data)

    def signature(self) -> list[Any]:
        """The commit, which determines every file's content, and the column."""
        record = self.repository.record()
        return [record.repository, record.commit, self.prefix, self.data.column]

    def files(self) -> tuple[str, ...]:
        """The name of the data set."""
        return (self.repository.display_name,)

    def origin(self) -> Origin:
        """The data set, its commit, its license as stated, and the files' names."""
        record, files = self.repository.record(), self.repository.files(self.prefix)
        return Origin(
            hub=record.repository, commit=record.commit, licence=record.licence, files=tuple(files)
        )


@dataclass
class Part(_Hashed):
    """A part of another source, by shares of its characters from `first` to `last`, each between 0
    and 1.

    max_bytes: only the beginning of the source counts, of at most so many bytes of UTF-8.
    """

    whole: StreamSource
    first: float = 0.0
    last: float = 1.0
    max_bytes: int | None = None
    _characters: list[int] = field(default_factory=list)  # of the whole, once counted

    def pieces(self) -> Iterator[Piece]:
        """The text of the part. It begins a document, even in the middle of one."""
        low, high = self._limits()
        position, started = 0, False
        for text, begins in self._beginning():
            end = position + len(text)
            if end > low and position < high:
                yield Piece(text[max(0, low - position) : high - position], begins or not started)
                started = True
            position = end
            if position >= high:
                return

    def _limits(self) -> tuple[int, int]:
        """The first character, and the one after the last."""
        if self.first == 0.0 and self.last == 1.0:
            # The whole text: no characters are counted, since that would read all of it once more.
            return 0, 1 << 62
        if not self._characters:
            self._characters.append(sum(len(text) for text, _ in self._beginning()))
        total = self._characters[0]
        # The end of the last part is the end of the text, however its share was rounded.
        return int(total * self.first), total if self.last > 1 - _ROUNDING else int(
            total * self.last
        )

    def _beginning(self) -> Iterator[Piece]:
        if self.max_bytes is None:
            yield from self.whole.pieces()
            return
        left, begins = self.max_bytes, False
        for piece in self.whole.pieces():
            begins |= piece.begins
            content = piece.text.encode()[:left]
            left -= len(content)
            text = content.decode(errors="ignore")  # of a character that is cut, nothing is left
            if text:
                yield Piece(text, begins)
                begins = (
                    False  # a document that begins with an empty piece begins with the next one
                )
            if left <= 0:
                return

    def signature(self) -> list[Any]:
        """The part, and the signature of the whole."""
        return [self.first, self.last, self.max_bytes, self.whole.signature()]

    def files(self) -> tuple[str, ...]:
        """The files of the whole."""
        return self.whole.files()

    def origin(self) -> Origin:
        """The origin of the whole, and the part."""
        limit = {} if self.max_bytes is None else {"max_bytes": self.max_bytes}
        return self.whole.origin().updated(
            part=(round(self.first, 6), round(self.last, 6)), **limit
        )


def resolve_streams(
    data: LanguageData, folder: Path, corpora: Path, log: Callable[[str], None] = lambda line: None
) -> dict[str, StreamSource]:
    """The source of every split. Files are located but not read, and nothing is downloaded yet.

    Args:
        data: the study's data settings.
        folder: the folder of its files.
        corpora: the folder of prepared corpora, which also keeps records of the Hub's data sets.
        log: receives a line for each download.

    Raises:
        DataError: splits are missing; one line for each.
    """
    hub = data.hub
    repository = repository_of(hub, corpora, log)
    faults: dict[str, None] = {}

    def located(name: str, split: str) -> StreamSource | None:
        try:
            return (
                GeneratedStream(split)
                if data.generated
                else _located(name, data, folder, hub, repository)
            )
        except DataError as error:
            faults.update(dict.fromkeys(error.lines))
            return None

    train = located(data.train, "train")
    sources: dict[str, StreamSource | None] = {"train": train}
    end = 1.0 if data.generated else 1.0 - data.held_out
    if train is not None and (end < 1.0 or data.max_bytes is not None):
        sources["train"] = Part(train, 0.0, end, data.max_bytes)
    for split, name in (("dev", data.dev), ("test", data.test)):
        share = share_of(name)
        if split == "test" and name == SAME_AS_DEV and not data.generated:
            sources[split] = sources.get("dev")
        elif share is None:
            sources[split] = located(name, split)
        elif train is not None:
            sources[split] = Part(train, end, end + share, data.max_bytes)
            end += share
    if faults:
        raise DataError(*faults)
    found = {split: source for split, source in sources.items() if source is not None}
    if data.corpus == FILES:
        _refuse_unused(data, [path for source in found.values() for path in source.files()])
    return found


def _refuse_unused(data: LanguageData, files: Sequence[str]) -> None:
    """Refuse settings of tables where every file is plain text."""
    unused = [name for name in ("column", "rows") if getattr(data, name) != data.introduced[name]]
    if unused and all(suffix_of(path) not in _TABLES for path in files):
        raise DataError(
            f"{files[0]}: is plain text: data.{unused[0]} has no effect on it; remove it"
        )


def _located(
    name: str, data: LanguageData, folder: Path, hub: HubData | None, repository: Repository | None
) -> StreamSource:
    """The source of a split that is not a share of another."""
    if hub is None or repository is None or is_address(name):
        return _files(joined(folder, name), data)
    prefix = name
    if hub.files is not None:
        if name not in hub.files:
            near = did_you_mean(name, hub.files) or f"; its splits are {', '.join(hub.files)}"
            raise DataError(f'corpus {data.corpus} on the Hub has no split "{name}"{near}')
        prefix = hub.files[name]
    return HubStream(repository, prefix, data)


def _files(path: str, data: LanguageData) -> StreamSource:
    if is_file(path):
        return FileStream((path,), data)
    candidates = [f"{path}{ending}" for ending in (".gz", TEXT_SUFFIX, f"{TEXT_SUFFIX}.gz")]
    found = [candidate for candidate in candidates if is_file(candidate)]
    if found:
        return FileStream(found[:1], data)
    inside = files_in(path)
    if inside is None:
        raise missing(path)
    readable_files = [file for file in inside if suffix_of(file) in (TEXT_SUFFIX, *_TABLES)]
    if not readable_files:
        raise DataError(
            f"{path}: holds no file that ends in {listed((TEXT_SUFFIX, *_TABLES))}, or these with "
            f".gz"
        )
    return FileStream(readable_files, data)


def _pieces_of(path: str, data: LanguageData) -> Iterator[Piece]:
    """The text of a file, whose ending names its format; any other file is a text file."""
    if suffix_of(path) not in _TABLES:
        yield from (Piece(text, index == 0) for index, text in enumerate(_read_text(path)))
        return
    fields = TextFields(data.fields, data.labels, data.columns, columns_set_by=("column",))
    for index, (text,) in enumerate(read_values(path, fields, Counter())):
        yield Piece(text, begins=index == 0 or data.rows == "documents")


def _read_text(path: str) -> Iterator[str]:
    """The text of a file in pieces, without a byte-order mark; line ends are kept as they are.

    Raises:
        DataError: the text is not UTF-8 or holds a NUL byte; with file and line.
    """
    decoder, line, kept = codecs.getincrementaldecoder("utf-8")(), 1, ""
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
                text, first = text.removeprefix("\ufeff"), False
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
    """The last place at which a text can be cut without changing its tokens: after a line end, or
    before a space.
    """
    return max(text.rfind("\n") + 1, text.rfind(" "), 0) or len(text)
