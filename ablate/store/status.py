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
from ablate.store.records import Failure, Progress, Result, fault_in, none_if_unreadable
from ablate.store.score_cache import fault_in_predictions

State = Literal["pending", "running", "interrupted", "failed", "diverged", "done"]
STATES: tuple[State, ...] = ("done", "running", "interrupted", "pending", "failed", "diverged")

NO_DECODING = ""  # in place of a decoding id: the state of the training

_TAIL_BYTES = 1 << 20  # number of bytes that are read from the end of a log


@dataclass(frozen=True)
class RunFiles:
    """The files that determine the state of a run. Each file is read once, for all decodings.

    result: result of the run; None if it is absent, damaged or unreadable.
    fault: the fault of a damaged or unreadable result.
    """

    folder: RunFolder
    result: Result | None
    fault: StoreError | None = None

    @classmethod
    def read(cls, folder: RunFolder) -> RunFiles:
        """Read the result of a run. The progress report is read later, if a state needs it."""
        try:
            return cls(folder, folder.read_result())
        except StoreError as error:
            return cls(folder, None, error)

    def state(self, decoding: str) -> State:
        """The state of one decoding; with NO_DECODING, the state of the training.

        A run with a damaged or unreadable result counts as interrupted.
        """
        if self.result is not None:
            if self.result.outcome == "diverged":
                return "diverged"
            if decoding == NO_DECODING or decoding in self.result.decodings:
                return "done"
        return self._unfinished_state

    def state_in(self, decodings: Iterable[str]) -> State:
        """The combined state of several decodings; without decodings, the state of the training."""
        return state_of_all(map(self.state, list(decodings) or [NO_DECODING]))

    def fault_in_predictions(self, decodings: Iterable[str]) -> Fault | None:
        """The first fault in the predictions of these decodings; None if all are undamaged,
        archived or not made yet.
        """
        decoded = self.result.decodings if self.result is not None else {}
        for id in decodings:
            if id in decoded and (fault := fault_in_predictions(self.folder, id, decoded[id])):
                return fault
        return None

    @cached_property
    def _unfinished_state(self) -> State:
        progress = none_if_unreadable(self.folder.read_progress)
        # Checked before failure.json, which a repeated attempt removes only at its end.
        if progress is not None and (is_alive(progress) or _renews_lease(self.folder, progress)):
            return "running"
        if is_there(self.folder.failure):
            return "failed"
        if self.result is not None:
            return "pending"  # trained, but not decoded with these settings
        has_begun = self.fault is not None or progress is not None
        return "interrupted" if has_begun else "pending"


def state_of(folder: RunFolder, decoding: str) -> State:
    """The state of one decoding of a run; see `RunFiles.state`."""
    return RunFiles.read(folder).state(decoding)


def state_in_any_decoding(folder: RunFolder) -> State:
    """The state of a run, which is done if any of its decodings is done."""
    files = RunFiles.read(folder)
    decodings = files.result.decodings if files.result is not None else {}
    return files.state_in([*decodings][:1])


def state_of_all(states: Iterable[State]) -> State:
    """Combine the states of several decodings of a run: `done` if all are done, otherwise the first
    other state.
    """
    for state in states:
        if state != "done":
            return state
    return "done"


def fault_in_result(folder: RunFolder) -> Fault | None:
    """The fault of a damaged or unreadable result; None if it is undamaged or absent."""
    return fault_in(folder.read_result, "`ablate run` makes it again")


def record_failure(
    folder: RunFolder, reason: str, earlier: Failure | None, killed: bool = False, kind: str = ""
) -> None:
    """Write failure.json, with the hosts of an earlier failure. `killed`: see `Failure`; `kind` is
    the name of the exception's class.

    Raises:
        OSError: the disk refused.
    """
    if not folder.path.is_dir():  # somebody has removed the results
        return
    # Without duplicates: the number of hosts decides whether another host tries the run.
    hosts = dict.fromkeys(earlier.hosts if earlier else ())
    hosts[socket.gethostname()] = None
    failure = Failure(reason=reason, kind=kind, time=time.time(), killed=killed, hosts=tuple(hosts))
    failure.write(folder.failure)


def add_line(log: Path, line: str) -> None:
    """Append a line to the log of a run in the format of its workers."""
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")


def last_lines(log: Path, count: int) -> list[str]:
    """Read the last lines of a log, without unprintable characters; empty if there is no log."""
    try:
        with open_file(log) as file:
            start = file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            content = file.read()
    except OSError:
        return []
    if start > 0:  # the content begins within a line
        content = content.partition(b"\n")[2] or content
    lines = filter(str.strip, content.decode("utf-8", "replace").splitlines())
    return list(map(printable, deque(lines, maxlen=count)))


def _renews_lease(folder: RunFolder, progress: Progress) -> bool:
    """Whether the process of this report, on another host, still renews the lease. It may do so
    without reporting, as during a long evaluation.
    """
    if progress.phase == "left" or is_here(progress):
        return False
    try:
        return is_working(progress, folder.lease.stat().st_mtime)
    except OSError:
        return False


def is_alive(progress: Progress) -> bool:
    """Whether the process that wrote a report still works on the run."""
    return progress.phase != "left" and is_working(progress, progress.time)
