"""Files to read: on this machine or at any address that fsspec opens, plain or compressed with gzip."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from ablate.errors import DataError

BLOCK = 1 << 20


def is_address(name: str) -> bool:
    """Whether a name is an address such as s3://bucket/train.en, and not a path on this machine."""
    return "://" in name


def joined(folder: Path, name: str) -> str:
    """A split's name as a path: addresses stand for themselves, others lie in the folder."""
    return name if is_address(name) else str(folder / Path(name).expanduser())


def is_file(path: str) -> bool:
    """Whether there is such a file."""
    return _filesystem(path).isfile(path) if is_address(path) else Path(path).is_file()


def files_in(path: str) -> list[str] | None:
    """The files in a folder, by name, without hidden ones; None where there is no such folder."""
    if is_address(path):
        system = _filesystem(path)
        if not system.isdir(path):
            return None
        found = [system.unstrip_protocol(entry["name"]) for entry in system.ls(path) if entry["type"] == "file"]
    else:
        if not Path(path).is_dir():
            return None
        found = [str(entry) for entry in Path(path).iterdir() if entry.is_file()]
    return sorted(name for name in found if not name.rpartition("/")[2].startswith((".", "_")))


def signature(path: str) -> list[Any]:
    """What changes when a file does, known without reading it."""
    with readable(path):
        if is_address(path):
            return [path, str(_filesystem(path).ukey(path))]
        found = Path(path).stat()
        return [str(Path(path).resolve()), found.st_size, found.st_mtime_ns, found.st_ino]


@contextmanager
def open_bytes(path: str) -> Iterator[IO[bytes]]:
    """The file's content, taken out of its archive where the name ends in .gz."""
    with _filesystem(path).open(path, "rb") if is_address(path) else Path(path).open("rb") as stream:
        if not path.endswith(".gz"):
            yield stream
            return
        with gzip.open(stream, "rb") as content:
            yield cast("IO[bytes]", content)


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Turn what reading a file may raise into one line.

    Raises:
        DataError: it is not a whole archive, or cannot be read.
    """
    try:
        yield
    except (gzip.BadGzipFile, zlib.error, EOFError):
        raise DataError(f"{path}: is not a whole gzip archive") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def text_hash(path: str) -> str:
    """The SHA-256 of a file's text, the same plain and compressed.

    Raises:
        DataError: it cannot be read, or is a broken archive.
    """
    digest = hashlib.sha256()
    with readable(path), open_bytes(path) as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _filesystem(path: str) -> Any:
    """The file system that an address belongs to.

    Raises:
        DataError: what it needs is not installed.
    """
    try:
        import fsspec

        return fsspec.core.url_to_fs(path)[0]
    except (ImportError, ValueError) as error:
        raise DataError(f"{path}: cannot be opened: {str(error).splitlines()[0]}") from None
