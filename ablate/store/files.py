"""Files that are whole or absent: written beside their place, flushed to the disk, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.errors import StoreError

_BLOCK = 1 << 20


def write_bytes(path: Path, content: bytes, durable: bool = True) -> None:
    """Replace a file atomically. `durable` waits for the disk, so that it survives a power cut too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def write_json(path: Path, content: Mapping[str, Any], durable: bool = True) -> None:
    """Replace a JSON file atomically; readable by a person."""
    write_bytes(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode(), durable)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file, or None where there is no such file.

    Raises:
        StoreError: the file is not what was written.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise StoreError(f"{path}: is damaged (not JSON); remove it and run again") from None
    if not isinstance(content, dict):
        raise StoreError(f"{path}: is damaged (not an object); remove it and run again")
    return content


def sync_file(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def remove_temporaries(folder: Path) -> None:
    """Remove what writers that were killed left behind; call it only as the folder's one writer."""
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)
