"""Atomic files: written beside their final path, flushed to the disk, then renamed.

A JSON file ends with the hash of everything before it, and is parsed only if that hash matches.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from ablate.errors import Damaged, StoreError

_CHECK = b',\n "check": "'  # begin of the last field of a JSON file, which has the hash
_SEAL = re.compile(rb'([0-9a-f]{64})"\n}\n')  # the rest of the file: the hash
# Errors that mean that something other than a file has the path.
_NOT_A_FILE = {
    errno.EISDIR: "a folder in place of a file",
    errno.ENOTDIR: "a file in place of its folder",
    errno.ELOOP: "a link that leads to itself",
    errno.ENXIO: "a pipe or a device in place of a file",
}
# Errors of file systems without hard links.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


def write_bytes(path: Path, content: bytes, durable: bool = True, once: bool = False) -> None:
    """Replace a file atomically.

    Args:
        path: path of the file. A symbolic link is replaced, not followed.
        content: content of the whole file.
        durable: whether to wait for the disk, so that the file survives a power cut.
        once: whether to fail if the file exists. Of several simultaneous writers, only one
            succeeds.

    Raises:
        FileExistsError: `once` is set and the file exists.
        OSError: the disk refused. The path has either the old content, or the complete new content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because a rename is atomic only within a file system. The random part of
    # the name separates simultaneous writers.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        # Unbuffered, so that fsync covers every byte.
        with temporary.open("xb", buffering=0) as file:
            _write_all(file.fileno(), content)
            if durable:
                os.fsync(file.fileno())
            inode = os.fstat(file.fileno()).st_ino
        if once:
            _link(temporary, path)
        else:
            _rename(temporary, path, inode)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # callers know this path, not the temporary one
        raise
    if durable:
        sync_folder(path.parent)


def _write_all(file: int, content: bytes) -> None:
    """Write all bytes to a descriptor, in several calls if the system writes only some of them."""
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(file, remaining) :]


def _rename(temporary: Path, path: Path, inode: int) -> None:
    """Rename a temporary file, which has this inode, to its final path. An existing file is
    replaced.
    """
    try:
        temporary.replace(path)
    except FileNotFoundError:
        # NFS repeats a request whose answer is lost: the first request may have renamed the file.
        if path.lstat().st_ino != inode:
            raise


def _link(temporary: Path, path: Path) -> None:
    """Move a temporary file to its final path, unless the path exists. Of several writers, only one
    succeeds.
    """
    try:
        os.link(temporary, path)  # fails if the path exists, unlike a rename
    except FileExistsError:
        # NFS repeats a request whose answer is lost: the path may already be a link to this file.
        if not path.samefile(temporary):
            raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without hard links, two writers may pass this check; but the lease admits only one writer.
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.replace(path)
        return
    temporary.unlink()


def write_json(
    path: Path, content: Mapping[str, Any], durable: bool = True, once: bool = False
) -> None:
    """Replace a JSON file atomically, with its hash at the end; see `write_bytes`."""
    write_bytes(path, sealed(content), durable, once)


def sealed(content: Mapping[str, Any]) -> bytes:
    """Encode an object as JSON whose last field is the SHA-256 of all bytes before that field."""
    assert content
    assert "check" not in content
    # NaN and Infinity are refused: they are not JSON, and other programs could not read the file.
    body = json.dumps(content, indent=1, allow_nan=False).encode().removesuffix(b"\n}")
    return body + _CHECK + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading. Anything else is refused, such as a named pipe, which would block.

    Raises:
        OSError: the path cannot be opened, or is not a file; see `unreadable`.
    """
    file = open(path, "rb", opener=_open_without_blocking)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), str(path))
    return file


def _open_without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def is_there(path: Path) -> bool:
    """Whether a path exists; False in a folder that this user must not read."""
    return os.path.exists(path)  # noqa: PTH110


def read_bytes(path: Path) -> bytes | None:
    """Read a file; None if it does not exist.

    Raises:
        Damaged: the path is not a file but a folder, a pipe or a link to itself, or its folder is a
            file.
        StoreError: the file cannot be read.
    """
    try:
        with open_file(path) as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError) -> StoreError:
    """Make the error for a path that could not be read: Damaged if it is not a file."""
    if error.errno in _NOT_A_FILE:
        return Damaged(f"{path}: is damaged ({_NOT_A_FILE[error.errno]})")
    return StoreError(f"{path}: cannot be read: {error.strerror}")


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a sealed JSON file; None if it does not exist.

    Raises:
        Damaged: the content does not match its hash.
        StoreError: the file cannot be read.
    """
    raw = read_bytes(path)
    if raw is None:
        return None
    body, _, seal = raw.rpartition(_CHECK)
    written = _SEAL.fullmatch(seal)
    if not body or written is None:
        raise Damaged(
            f"{path}: is damaged (it does not end with its hash: it was cut, changed by hand, or "
            "written by an ablate before 0.2)"
        )
    if hashlib.sha256(body).hexdigest().encode() != written[1]:
        raise Damaged(f"{path}: is damaged (its SHA-256 is not the one written)")
    try:
        content = _parsed(body + b"\n}")
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):  # a correct hash proves nothing: anybody can compute it
        raise Damaged(f"{path}: is damaged (not the JSON that was written)")
    return content


def _parsed(text: bytes) -> Any:
    # pydantic's parser takes an eighth of the time for thousands of scores. But it refuses unpaired
    # surrogates, which the text of an error may contain.
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")  # Python's parser would accept it


def sync_file(path: Path) -> None:
    """Flush a file to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder to the disk, which makes renames in it durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path, expected: str) -> None:
    """Compare a file with its SHA-256.

    Raises:
        Damaged: the file is missing, or does not match.
        StoreError: the file cannot be read.
    """
    try:
        digest = sha256(path)
    except FileNotFoundError:
        digest = ""
    except OSError as error:
        raise unreadable(path, error) from None
    if digest != expected:
        raise Damaged(f"{path}: is damaged or missing (its SHA-256 is not the one written)")


def size_of(paths: Iterable[Path]) -> int:
    """Total bytes of files and of folders with their content. A missing file counts as 0."""
    total = 0
    for path in paths:
        try:
            status = path.lstat()
            total += size_of(path.iterdir()) if stat.S_ISDIR(status.st_mode) else status.st_size
        except OSError:
            continue
    return total


def quarantine(path: Path) -> None:
    """Rename a damaged file or folder to `<name>.damaged`, so that people can inspect it.

    An earlier file or folder of this name is removed.
    """
    target = path.with_name(f"{path.name}.damaged")
    remove(target)
    path.rename(target)


def make_room(path: Path) -> bool:
    """Quarantine a folder, a pipe or a broken link that is in the place of a file.

    Returns:
        Whether something was quarantined.

    Raises:
        OSError: the disk refused.
    """
    try:
        is_obstacle = not path.is_file() and not stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # nothing is there
        return False
    if is_obstacle:
        with suppress(FileNotFoundError):  # another process has removed it
            quarantine(path)
    return is_obstacle


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its content, if it exists. Links are not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()


def remove_temporaries(folder: Path) -> None:
    """Remove temporary files of killed writers. The caller must be the folder's only writer."""
    for leftover in folder.glob(".*.tmp"):
        with suppress(OSError):
            leftover.unlink()
