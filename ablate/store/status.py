"""The state of a run, derived from its files."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from ablate.errors import Fault, StoreError
from ablate.formatting import printable
from ablate.store.files import is_there, open_file
from ablate.store.layout import RunFolder
from ablate.store.processes import is_here, is_working
from ablate.store.records import Failure, Progress, Result, damage_in, if_readable

State = Literal["pending", "running", "interrupted", "failed", "diverged", "done"]
STATES: tuple[State, ...] = ("done", "running", "interrupted", "pending", "failed", "diverged")

NO_DECODING = ""  # in place of a decoding id: only the training counts

_MOST_BYTES = 1 << 20  # of a log, which is read at its end


@dataclass(frozen=True)
class RunFiles:
    """What the files of a run say of its state; each is read once, for all decodings.

    result: None if there is none, or if it is damaged or cannot be read, as `fault` says.
    """

    folder: RunFolder
    result: Result | None
    fault: StoreError | None = None

    @classmethod
    def read(cls, folder: RunFolder) -> RunFiles:
        """Read the result of a run; its last report is read if the result does not say enough."""
        try:
            return cls(folder, folder.read_result())
        except StoreError as error:
            return cls(folder, None, error)

    def state(self, decoding: str) -> State:
        """The state for one decoding, or of the training for NO_DECODING. A run whose result is
        damaged or cannot be read is interrupted.
        """
        if self.result is not None:
            if self.result.outcome == "diverged":
                return "diverged"
            if decoding == NO_DECODING or decoding in self.result.decodings:
                return "done"
        return self._unfinished

    def state_in(self, decodings: Iterable[str]) -> State:
        """The state over several decodings; without any, of the training."""
        return state_of_all(map(self.state, list(decodings) or [NO_DECODING]))

    @cached_property
    def _unfinished(self) -> State:
        progress = if_readable(self.folder.read_progress)
        # Before failure.json, which a run that is tried again removes only at the end of the
        # attempt.
        if progress is not None and (is_alive(progress) or _renews_lease(self.folder, progress)):
            return "running"
        if is_there(self.folder.failure):
            return "failed"
        if self.result is not None:
            return "pending"  # trained, but not yet decoded in this way
        return "pending" if self.fault is None and progress is None else "interrupted"


def state_of(folder: RunFolder, decoding: str) -> State:
    """The state of a run for one decoding, as `RunFiles.state`."""
    return RunFiles.read(folder).state(decoding)


def state_in_any_decoding(folder: RunFolder) -> State:
    """The state of a run; it is done if any decoding is."""
    files = RunFiles.read(folder)
    decodings = files.result.decodings if files.result is not None else {}
    return files.state_in([*decodings][:1])


def state_of_all(states: Iterable[State]) -> State:
    """The state of a run over several decodings, of one row or of the rows that share it: it is
    done if all are; otherwise that of the first that is not.
    """
    for state in states:
        if state != "done":
            return state
    return "done"


def damage_of(folder: RunFolder) -> Fault | None:
    """Why a run's result cannot be used; None if the result is whole or absent."""
    return damage_in(folder.read_result, "`ablate run` makes it again")


def record_failure(
    folder: RunFolder, reason: str, before: Failure | None, killed: bool = False, kind: str = ""
) -> None:
    """Write failure.json with this host after the hosts of an earlier failure.

    Raises:
        OSError: the disk refused.
    """
    if not folder.path.is_dir():  # somebody has removed the results: leave nothing there
        return
    # Different hosts: their number decides whether a run is tried elsewhere.
    hosts = dict.fromkeys(before.hosts if before else ())
    hosts[socket.gethostname()] = None
    failure = Failure(reason=reason, kind=kind, time=time.time(), killed=killed, hosts=tuple(hosts))
    failure.write(folder.failure)


def add_line(log: Path, line: str) -> None:
    """Append a line to the log of a run, as its workers write them."""
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log, without unprintable characters; empty if there is no log."""
    try:
        with open_file(log) as file:
            start = file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
            content = file.read()
    except OSError:
        return []
    if start > 0:  # it begins inside of a line
        content = content.partition(b"\n")[2] or content
    lines = filter(str.strip, content.decode("utf-8", "replace").splitlines())
    return list(map(printable, deque(lines, maxlen=count)))


def _renews_lease(folder: RunFolder, progress: Progress) -> bool:
    """Whether a process on another host still holds the lease, as in a long evaluation."""
    if progress.phase == "left" or is_here(progress):
        return False
    try:
        return is_working(progress, folder.lease.stat().st_mtime)
    except OSError:
        return False


def is_alive(progress: Progress) -> bool:
    """Whether the process that wrote this report still works on the run."""
    return progress.phase != "left" and is_working(progress, progress.time)
