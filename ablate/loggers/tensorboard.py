"""TensorBoard: event files in results/<study>/tensorboard, with a folder for each run."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from ablate.loggers.dashboards import LoggedRun, Outcome, Point, RecordFolder


def start(folder: Path, run: LoggedRun) -> _EventFile | None:
    """Start a new event file, for `tensorboard --logdir results/<study>/tensorboard`."""
    record = RecordFolder(folder / "tensorboard", run)
    return None if record.mark.exists() else _EventFile(record)


class _EventFile:
    """An event file. TensorBoard's own writer is not used: it starts a thread, which prints a
    traceback when it fails.
    """

    def __init__(self, record: RecordFolder) -> None:
        self.record = record
        self.last_step = 0
        name = f"events.out.tfevents.{int(time.time()):010}.{socket.gethostname()}"
        self.file = (Path(record.clear()) / name).open("xb")
        self.records = RecordWriter(self.file)
        self._add(file_version="brain.Event:2")

    def log(self, points: Sequence[Point]) -> None:
        for step, values in points:
            summary = Summary()
            for name, value in values.items():
                summary.value.add(tag=name, simple_value=value)
            self._add(step=step, summary=summary)
            self.last_step = step
        self.file.flush()

    def finish(self, scores: Mapping[str, float] | None, outcome: Outcome) -> None:
        if scores is not None:
            self.log([(self.last_step, scores)])
        self.file.close()
        if scores is not None:
            self.record.mark.touch()

    def _add(self, **content: object) -> None:
        self.records.write(Event(wall_time=time.time(), **content).SerializeToString())
