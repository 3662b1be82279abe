"""The metrics log: a JSON line for each log line or evaluation, the same with and without
interruptions.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from ablate.store.files import write_bytes

_CLOSED = -1  # in place of a file descriptor


class MetricsLog:
    """A file of JSON lines. A run that resumes first cuts the file to its size at the checkpoint.

    Lines that the disk refuses wait in memory, and are written with the next line. Each `cut` makes
    a new file and keeps it open. A process that has lost its lease therefore writes to the old
    file, which is no longer in the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0  # number of bytes, including unwritten lines
        self._file = _CLOSED
        self._unwritten = b""
        self._hash = hashlib.sha256()

    def append(self, **values: float) -> None:
        """Write a line, now or as soon as the disk accepts it."""
        line = (json.dumps(values) + "\n").encode()
        # Refused lines count too: they are written before a checkpoint stores the size and the
        # hash.
        self.size += len(line)
        self._hash.update(line)
        self._unwritten += line
        # Training continues on a full disk. `flush` raises the error when a checkpoint needs the
        # lines.
        with suppress(OSError):
            self._write()

    @property
    def sha256(self) -> str:
        """SHA-256 of the content, including unwritten lines."""
        return self._hash.hexdigest()

    def flush(self) -> None:
        """Write all lines, and flush the log to the disk.

        Raises:
            OSError: the disk refused.
        """
        self._write()
        os.fsync(self._file)

    def cut(self, size: int = 0, digest: str | None = None) -> bool:
        """Cut the file to this number of bytes, if they have the expected SHA-256; None accepts
        any.

        Returns:
            Whether the file was cut. It is unchanged if it is shorter than `size`, or if the hash
            differs.

        Raises:
            OSError: the disk refused.
        """
        content = self.path.read_bytes()[:size] if size and self.path.exists() else b""
        content_hash = hashlib.sha256(content)
        if len(content) < size or (digest is not None and content_hash.hexdigest() != digest):
            return False
        # Not truncate(): a process that has lost its lease still has the old file open.
        write_bytes(self.path, content)
        self.close()
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._unwritten = b""
        self.size = size
        self._hash = content_hash
        return True

    def last(self, name: str) -> float | None:
        """The newest value of a field; None if no line has the field."""
        for line in reversed(self.path.read_bytes().splitlines()):
            values: dict[str, float] = json.loads(line)
            if name in values:
                return values[name]
        return None

    def close(self) -> None:
        """Close the file."""
        if self._file != _CLOSED:
            os.close(self._file)
            self._file = _CLOSED

    def _write(self) -> None:
        while self._unwritten:
            # A nearly full disk may take only some of the bytes; the rest waits for the next
            # attempt.
            written = os.write(self._file, self._unwritten)
            self._unwritten = self._unwritten[written:]
