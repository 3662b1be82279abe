"""TensorBoard: event files in results/<study>/tensorboard, one folder per run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from ablate.loggers.base import LoggedRun, Point, RunFolders


class TensorBoard:
    """Writes event files, for `tensorboard --logdir results/<study>/tensorboard`."""

    def __init__(self, folder: Path) -> None:
        self.folders = RunFolders(folder / "tensorboard")

    def open(self, run: LoggedRun) -> _EventFile | None:
        """Start a new event file."""
        return None if self.folders.is_complete(run) else _EventFile(self.folders, run)


class _EventFile:
    known = 0

    def __init__(self, folders: RunFolders, run: LoggedRun) -> None:
        self.folders, self.run, self.last = folders, run, 0
        self.folder = folders.create(run.name)
        self.writer = EventFileWriter(str(self.folder))

    def add(self, points: Sequence[Point]) -> None:
        for point in points:
            self._write(point.step, point.values)
        self.writer.flush()

    def close(self, scores: Mapping[str, float] | None) -> None:
        if scores:
            self._write(self.last, scores)
        self.writer.close()
        if scores is not None:
            self.folders.mark_complete(self.folder, self.run)

    def _write(self, step: int, values: Mapping[str, float]) -> None:
        self.last = step
        summary = Summary(
            value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        )
        self.writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
