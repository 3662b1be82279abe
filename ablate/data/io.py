"""Find, open, read and hash files: local paths or addresses of fsspec, plain or compressed."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any

from ablate.errors import (
    NO_SUCH_FILE,
    AblateError,
    DataError,
    Fault,
    Interrupted,
    meant_name,
    nearest_path,
)
from ablate.formatting import first_line
from ablate.paths import home_path

_OPEN: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
COMPRESSED = tuple(_OPEN)
OR_COMPRESSED = "or these with .gz, .xz or .bz2"
BLOCK = 1 << 20  # bytes read at once
MAX_LINE_BYTES = 1 << 20
MAX_DOCUMENT_BYTES = 1 << 30  # a document in a row of a table is in memory as a whole


def is_address(name: str) -> bool:
    """Whether a name is an address, such as s3://bucket/train.en, and not a local path."""
    return "://" in name


def path_of_split(folder: Path, name: str) -> str:
    """The path of a split: an address as it is, any other name relative to the folder.

    Raises:
        DataError: the name is not a path, or the folder does not exist.
    """
    try:
        path = name if is_address(name) else str(folder / home_path(name))
    except ValueError as error:
        raise DataError(str(error)) from None
    with readable(str(folder)):  # a name may be too long
        has_folder = is_address(name) or Path(path).is_absolute() or folder.is_dir()
    if not has_folder:
        meant = nearest_path(folder, Path.is_dir)
        problem, named = "no such folder", ("folder",)
        raise DataError(Fault(problem, named, str(folder), code=NO_SUCH_FILE, meant=meant))
    return path


def is_file(path: str) -> bool:
    """Whether the path or address is a file.

    Raises:
        DataError: the address cannot be opened.
    """
    with readable(path):
        if is_address(path):
            return bool(_filesystem(path).isfile(path))
        return Path(path).is_file()


def files_in(path: str) -> list[str] | None:
    """The visible files of a folder, sorted by name; None if the folder does not exist.

    Raises:
        DataError: the folder cannot be read.
    """
    with readable(path):
        if is_address(path):
            system = _filesystem(path)
            if not system.isdir(path):
                return None
            entries = [entry["name"] for entry in system.ls(path) if entry["type"] == "file"]
            files = list(map(system.unstrip_protocol, entries))
        else:
            if not Path(path).is_dir():
                return None
            files = list(map(str, filter(Path.is_file, Path(path).iterdir())))
    # Hidden files, and files of other tools such as _SUCCESS, belong to no data set.
    return sorted(name for name in files if not name.rpartition("/")[2].startswith((".", "_")))


def missing(
    path: str,
    printed: str = "",
    remedy: str = "correct the name or data.folder",
    names: Iterable[str] | None = None,
) -> DataError:
    """The error for a file or folder that does not exist, with the most similar name.

    Args:
        path: path of the file or folder.
        printed: name of the file in the message; `path` by default.
        remedy: what to do if no name is similar.
        names: names that a study can give for this folder's splits; all files by default.
    """
    printed = printed or path
    if is_address(path):
        fault = Fault(f"{printed} not found", remedy="correct the address", code=NO_SUCH_FILE)
        return DataError(fault)
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        problem = f"{printed} not found: there is no folder {folder}"
        return DataError(Fault(problem, remedy=remedy, code=NO_SUCH_FILE))
    meant = _nearest(Path(path), names)
    return DataError(Fault(f"{printed} not found", remedy=remedy, code=NO_SUCH_FILE, meant=meant))


def _nearest(path: Path, names: Iterable[str] | None) -> str:
    """The most similar name; empty if there is none."""
    if names is None:
        try:
            names = []
            for entry in path.parent.iterdir():
                # A name with an ending, such as test.en, is no folder.
                if not (path.suffix and entry.is_dir()):
                    names.append(entry.name)
        except OSError:
            return ""
    known = sorted(names)
    if path.name in known:  # this file exists, but another file of the split does not
        return ""
    return meant_name(path.name, known) or meant_name(path.stem, known)


def signature(path: str) -> list[Any]:
    """A value that changes with a file's content: path, size, times, inode."""
    with readable(path):
        if is_address(path):
            return [path, str(_filesystem(path).ukey(path))]
        stat = Path(path).stat()
        # Inode and nanoseconds differ if another file of the same size has replaced the file.
        return [str(Path(path).resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino]


@contextmanager
def open_bytes(path: str) -> Iterator[BufferedIOBase]:
    """Open a file for reading bytes. If its name ends in one of COMPRESSED, it is decompressed."""
    # BufferedReader, because some file systems of fsspec cannot limit the length of a line.
    with (
        BufferedReader(_filesystem(path).open(path, "rb"))
        if is_address(path)
        else Path(path).open("rb") as stream
    ):
        ending = _compression_of(path)
        if not ending:
            yield stream
            return
        with _OPEN[ending](stream, "rb") as content:
            yield content


def uncompressed_name(name: str) -> str:
    """The name of a file without the ending of its compression."""
    return name.removesuffix(_compression_of(name))


def suffix_of(path: str) -> str:
    """The suffix of a file's format, without its compression: `.tsv` for `a/train.tsv.gz`."""
    name = uncompressed_name(path.rpartition("/")[2])
    return f".{name.rpartition('.')[2].lower()}" if "." in name else ""


def _compression_of(name: str) -> str:
    return next(filter(name.endswith, COMPRESSED), "")


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Context in which errors of reading a file become a DataError.

    Raises:
        DataError: the archive is broken, or the file cannot be read.
    """
    try:
        yield
    except (AblateError, Interrupted):
        raise
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError):
        format = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2"}[_compression_of(path)]
        raise DataError(f"{path}: is not a complete {format} archive") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or first_line(error)}") from None
    except Exception as error:
        if not is_address(path):
            raise
        # Each protocol is opened by another package, which has its own exceptions.
        raise DataError(f"{path}: cannot be read: {first_line(error)}") from None


def file_lines(path: str, repaired: Counter[str], longest: int = MAX_LINE_BYTES) -> Iterator[str]:
    """The lines of a text file without their ends, which are LF or CR LF. U+2028 ends no line.

    Args:
        path: a local path or an address, as for `open_bytes`.
        repaired: counts repairs by name: a byte-order mark, line ends of CR LF.
        longest: a line must have fewer bytes.

    Raises:
        DataError: a line is not UTF-8, contains a NUL byte or is too long; with file and line.
    """
    with readable(path), open_bytes(path) as stream:
        # As bytes, because lines of text would end at U+2028 too, which shifts all lines after it.
        for number, line in enumerate(iter(partial(stream.readline, longest + 1), b""), 1):
            line = line.removesuffix(b"\n")
            if len(line) >= longest:
                raise too_long(path, number, longest)
            if number == 1 and line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                remedy = "`iconv -f UTF-16 -t UTF-8` converts it"
                raise DataError(Fault(f"{path}: is UTF-16, not UTF-8", remedy=remedy))
            if b"\0" in line:
                raise DataError(f"{path}:{number}: contains a NUL byte: not text")
            if line.endswith(b"\r"):
                repaired["CR LF line ends"] += 1
                line = line[:-1]
            if number == 1 and line.startswith(BOM_UTF8):
                repaired["byte-order mark"] += 1
                line = line.removeprefix(BOM_UTF8)
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                byte = f" (byte {error.start + 1} of the line)"
                raise not_utf8(f"{path}:{number}", byte) from None


def not_utf8(place: str, byte: str = "") -> DataError:
    """The error for text in another encoding. No byte shows surely which one."""
    remedy = (
        "write the file in UTF-8: `iconv -f ENCODING -t UTF-8` converts it, where ENCODING is that "
        "of the program that wrote it, such as WINDOWS-1252"
    )
    return DataError(Fault(f"{place}: is not valid UTF-8{byte}", remedy=remedy))


def too_long(path: str, number: int, longest: int = MAX_LINE_BYTES) -> DataError:
    """The error for a line or a cell of at least `longest` bytes."""
    remedy = "not a sentence" if longest == MAX_LINE_BYTES else "divide the document"
    return DataError(f"{path}:{number}: is longer than {longest} bytes: {remedy}")


def bytes_hash(path: str) -> str:
    """SHA-256 of a file's content after decompression.

    Raises:
        DataError: the file cannot be read, or is a broken archive.
    """
    with readable(path), open_bytes(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _filesystem(path: str) -> Any:
    """The file system of an address.

    Raises:
        DataError: the protocol is unknown, its package is not installed, or it needs options.
    """
    try:
        import fsspec

        return fsspec.core.url_to_fs(path)[0]
    except TypeError:
        raise DataError(
            f"{path}: cannot be opened: this protocol needs options that a study cannot give"
        ) from None
    except Exception as error:  # the package for a protocol may raise any
        raise DataError(f"{path}: cannot be opened: {first_line(error)}") from None
