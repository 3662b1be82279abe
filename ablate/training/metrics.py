"""The metrics log: a JSON line an observation, the same bytes however often a run is interrupted."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ablate.store.files import write_bytes


class MetricsLog:
    """A file of lines that is cut back to a checkpoint's size before a run goes on from there.

    What the disk refuses is kept, and written with the next line. The file is made anew at each `cut` and held
    open, so that a process that has lost the run writes on into a file that nobody reads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        self._unwritten = b""
        self._size = 0
        self._hash = hashlib.sha256()

    def append(self, **values: float) -> None:
        """Write a line, now or when the disk takes it."""
        line = (json.dumps(values) + "\n").encode()
        self._size += len(line)
        self._hash.update(line)
        self._unwritten += line
        with suppress(OSError):
            self._write()

    def mark(self) -> dict[str, Any]:
        """What a checkpoint says of the log: its size in bytes and its hash."""
        return {"metrics_bytes": self._size, "metrics_sha256": self._hash.hexdigest()}

    def flush(self) -> None:
        """Wait for the disk, so that the log is never behind a checkpoint that speaks of it.

        Raises:
            OSError: the disk refused.
        """
        self._write()
        os.fsync(self._file)

    def cut(self, size: int = 0, digest: str | None = None) -> bool:
        """Cut the file to a size; false, and nothing done, where it does not hold that much or holds something else.

        Raises:
            OSError: the disk refused.
        """
        content = self.path.read_bytes()[:size] if size and self.path.exists() else b""
        found = hashlib.sha256(content)
        if len(content) < size or (digest is not None and found.hexdigest() != digest):
            return False
        write_bytes(self.path, content)
        self.close()
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        self._unwritten, self._size, self._hash = b"", size, found
        return True

    def last(self, name: str) -> float | None:
        """What the last line that has it says; None where no line does."""
        for line in reversed(self.path.read_bytes().splitlines()):
            values: dict[str, float] = json.loads(line)
            if name in values:
                return values[name]
        return None

    def close(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self) -> None:
        while self._unwritten:
            self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
