"""The metrics log: a JSON line an observation, the same bytes however often a run is interrupted."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ablate.store.files import sync_file


class MetricsLog:
    """A file of lines that is cut back to a checkpoint's size before a run goes on from there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0  # bytes

    def append(self, **values: float) -> None:
        """Write a line."""
        line = (json.dumps(values) + "\n").encode()
        with self.path.open("ab") as file:
            file.write(line)
        self.size += len(line)

    def sync(self) -> None:
        """Wait for the disk, so that the log is never behind a checkpoint that speaks of it."""
        if self.path.exists():
            sync_file(self.path)

    def cut(self, size: int) -> bool:
        """Cut the file to a size; false, and nothing done, where it does not hold as much."""
        if not self.path.exists():
            self.path.touch()
        if self.path.stat().st_size < size:
            return False
        os.truncate(self.path, size)
        self.size = size
        return True
