"""Weights & Biases, offline: files in results/<study>/wandb, one folder per run; `wandb sync`
uploads them.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import wandb
from wandb.proto.wandb_internal_pb2 import Record

from ablate.loggers.dashboards import LoggedRun, Point, RecordFolder

# Seconds in which the process of W&B must have written a record after its end.
END_SECONDS = 10.0
_HEAD, _BLOCK = 7, 32768  # bytes of a file's and a part's head; parts cross no block
_FULL, _LAST = 1, 4  # kinds of parts that end a record


class WeightsAndBiases:
    """Writes offline runs. Nothing is sent before `wandb sync`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "wandb"
        logging.raiseExceptions = False  # W&B's own log on a full disk: a traceback for each line

    def start(self, run: LoggedRun) -> _OfflineRun | None:
        """Start an offline run with the same id, which a run synced earlier is replaced by."""
        record = RecordFolder(self.folder, run)
        return None if record.mark.exists() else _OfflineRun(record, run)


class _OfflineRun:
    def __init__(self, record: RecordFolder, run: LoggedRun) -> None:
        self.record = record
        self.steps: set[int] = set()
        self.run = wandb.init(
            project=run.study,
            id=run.id,
            name=run.name,
            group=run.row,
            dir=record.clear(),
            config=dict(run.settings),
            mode="offline",
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
            ),
        )

    def log(self, points: Sequence[Point]) -> None:
        for step, values in points:
            self.run.log(dict(values), step=step)
            self.steps.add(step)

    def finish(self, scores: Mapping[str, float] | None) -> None:
        self.run.summary.update(dict(scores or {}))
        self.run.finish()
        if scores is not None:
            self._await_end()
            self.record.mark.touch()

    def _await_end(self) -> None:
        """Wait until all that was logged is in the file, which another process writes, silently
        where the disk is full.
        """
        file, end = Path(self.run.settings.sync_file), time.monotonic() + END_SECONDS
        while not _is_whole(file, len(self.steps)):
            if time.monotonic() > end:
                raise OSError(f"the disk may be full: not all that was logged is in {file}")
            time.sleep(0.05)


def _is_whole(file: Path, steps: int) -> bool:
    """Whether the file of an offline run has so many steps and its end."""
    kinds = [Record.FromString(raw).WhichOneof("record_type") for raw in _records(file)]
    return kinds[-1:] == ["exit"] and kinds.count("history") == steps


def _records(file: Path) -> Iterator[bytes]:
    """The whole records of a W&B file, in LevelDB's log format: parts with a head each."""
    content, at, parts = file.read_bytes(), _HEAD, []
    while at + _HEAD <= len(content):
        left = _BLOCK - at % _BLOCK
        if left < _HEAD:  # filled with zeros
            at += left
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        at += _HEAD + length
        parts.append(content[at - length : at])
        if kind in (_FULL, _LAST) and at <= len(content):
            yield b"".join(parts)
            parts = []
