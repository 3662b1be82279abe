"""Sentence pairs from files: plain text or .gz in two files, or TSV; checked line by line."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from ablate.errors import DataError

MAX_LINE_BYTES = 1 << 20
TSV = (".tsv", ".tsv.gz")


def split_files(folder: Path, name: str, languages: tuple[str, str]) -> tuple[Path, ...]:
    """The files of a split: one TSV, or one file a language, plain or .gz.

    Raises:
        DataError: they are not there; the message names what was looked for.
    """
    if name.endswith(TSV):
        return (_existing([folder / name]),)
    return tuple(_existing([folder / f"{name}.{lang}", folder / f"{name}.{lang}.gz"]) for lang in languages)


def read_pairs(files: tuple[Path, ...]) -> Iterator[tuple[int, str, str]]:
    """(line number from 1, source, target) of each line; sides may be empty and are stripped.

    Raises:
        DataError: invalid UTF-8, a broken archive, unequal line counts, or a TSV line without two columns.
    """
    if len(files) == 1:
        yield from _read_tsv(files[0])
        return
    sources, targets = _lines(files[0]), _lines(files[1])
    for number, source in sources:
        target = next(targets, None)
        if target is None:
            longer = number + sum(1 for _ in sources)
            raise DataError(f"{files[1]}: has {number - 1} lines, but {files[0]} has {longer}: they must pair")
        yield number, source, target[1]
    rest = sum(1 for _ in targets)
    if rest:
        count = _count(files[0])
        raise DataError(f"{files[0]}: has {count} lines, but {files[1]} has {count + rest}: they must pair")


def text_hash(file: Path) -> str:
    """The SHA-256 of a file's text, the same plain and compressed.

    Raises:
        DataError: it cannot be read, or is a broken archive.
    """
    digest = hashlib.sha256()
    with _readable(file), _open(file) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _read_tsv(file: Path) -> Iterator[tuple[int, str, str]]:
    for number, line in _lines(file):
        columns = line.split("\t")
        if len(columns) < 2:
            raise DataError(f"{file}:{number}: has no tab: a line is SOURCE<tab>TARGET")
        yield number, columns[0].strip(), columns[1].strip()


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Lines are ended by LF alone (or CR LF): U+2028 and its like are part of a sentence."""
    number = 0
    try:
        with _readable(file), _open(file) as stream:
            while raw := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise DataError(f"{file}:{number}: is longer than {MAX_LINE_BYTES} bytes: not a sentence")
                if b"\0" in raw:
                    raise DataError(f"{file}:{number}: contains a NUL byte: not text")
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, text.rstrip("\r\n") if file.name.endswith(TSV) else text.strip()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}:{number}: is not valid UTF-8 (byte {error.start + 1} of the line)") from None


def _open(file: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(file, "rb")) if file.suffix == ".gz" else file.open("rb")


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Turn what reading may raise into one line."""
    try:
        yield
    except (gzip.BadGzipFile, zlib.error, EOFError):
        raise DataError(f"{file}: is not a whole gzip archive") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from None


def _count(file: Path) -> int:
    return sum(1 for _ in _lines(file))


def _existing(candidates: list[Path]) -> Path:
    for path in candidates:
        if path.is_file():
            return path
    names = " nor ".join(str(path) for path in candidates)
    raise DataError(f"there is no {names}: data.folder says where the splits lie")
