"""Read metrics.jsonl, the log of a run. Each line is a `MetricsLine`."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from ablate.errors import StoreError
from ablate.store.files import open_file, read_bytes
from ablate.store.records import MetricsLine


def evaluation_at(path: Path, step: int | None) -> float | None:
    """The last dev perplexity at a step in a log; None if the log has none or cannot be read."""
    perplexities = []
    with suppress(StoreError):
        for line in read_metrics(path):
            # Only a damaged log has a perplexity of 0 or less. It would have no logarithm.
            if line.step == step and (line.dev_perplexity or 0) > 0:
                perplexities.append(line.dev_perplexity)
    return perplexities[-1] if perplexities else None


def read_metrics(path: Path) -> list[MetricsLine]:
    """Read a log.

    Raises:
        StoreError: the log cannot be read.
    """
    return parse_metrics(read_bytes(path) or b"")


class MetricsTail:
    """Follows a log that another process writes: each reading takes only its new lines.

    An interrupted run cuts its log back to its last checkpoint, and writes the same lines again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0  # number of lines read so far
        self.size = 0  # number of bytes read so far

    def new_lines(self) -> tuple[int, list[MetricsLine]]:
        """Read the lines that were added since the last call; all lines if the log was cut.

        Returns:
            The number of lines before the new ones, and the new lines.
        """
        content = b""
        with suppress(OSError), open_file(self.path) as file:
            if file.seek(0, os.SEEK_END) < self.size:  # the log was cut
                self.lines = 0
                self.size = 0
            file.seek(self.size)
            content = file.read()
        # An incomplete last line, which a worker may be writing, is read by a later call.
        complete = content[: content.rfind(b"\n") + 1]
        previous = self.lines
        lines = parse_metrics(complete)
        self.lines += len(lines)
        self.size += len(complete)
        return previous, lines


def parse_metrics(content: bytes) -> list[MetricsLine]:
    """Parse the lines of a log, and skip what is no `MetricsLine`."""
    records = []
    for line in content.splitlines():
        # A kill may leave an incomplete last line, which a resumed run cuts off.
        with suppress(ValueError):
            records.append(MetricsLine.model_validate(json.loads(line)))
    return records
