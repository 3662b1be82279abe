"""The state of a run, derived from its files."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any, Literal

from ablate.errors import Damaged, StoreError
from ablate.formatting import printable
from ablate.store.files import read_json
from ablate.store.layout import RunFolder

State = Literal["pending", "running", "interrupted", "failed", "diverged", "done"]
STATES: tuple[State, ...] = ("done", "running", "interrupted", "pending", "failed", "diverged")

# A worker elsewhere whose progress is older than this is taken for dead; here its process is looked up.
HEARTBEAT_SECONDS = 120.0
_TAIL_BYTES = 16_384
CLOCK_SECONDS = 2.0  # the system reckons a process' start from a clock that may be set


def state_of(folder: RunFolder, decoding: str) -> State:
    """Where a run stands, for one way of decoding it. With a damaged result it is not done, but interrupted.

    Raises:
        StoreError: its result cannot be read, or is of another version.
    """
    try:
        result = folder.read_result()
    except Damaged:
        result, damaged = None, True
    else:
        damaged = False
    if result is not None:
        if result["outcome"] == "diverged":
            return "diverged"
        if decoding in result["decodings"]:
            return "done"
    progress = read_progress(folder)
    if progress is not None and is_alive(progress):
        return "running"
    if folder.failure.exists():
        return "failed"
    if result is not None:
        return "pending"  # trained; this way of decoding is still to come
    return "interrupted" if damaged or progress is not None else "pending"


def standing(folder: RunFolder) -> State:
    """Where a run stands, however it is to be decoded: done if it is in any way."""
    try:
        result = folder.read_result()
    except StoreError:
        result = None
    return state_of(folder, next(iter((result or {}).get("decodings", {})), ""))


def damage_of(folder: RunFolder) -> str | None:
    """What is wrong with a run's result; None where it is whole or absent."""
    try:
        folder.read_result()
    except Damaged as error:
        return f"{error}; `ablate run` makes it again"
    return None


def read_progress(folder: RunFolder) -> dict[str, Any] | None:
    """Where the run is; None where it never began. A damaged file counts as none: it is only a report."""
    try:
        return read_json(folder.progress)
    except StoreError:
        return None


def failure_of(folder: RunFolder) -> str | None:
    """Why a run has failed; None where that is not known."""
    failure = _read_failure(folder)
    return None if failure is None else str(failure["reason"])


def was_killed(folder: RunFolder) -> bool:
    """Whether a failed run's workers were ended from outside, so that nothing says that they would be again."""
    return bool((_read_failure(folder) or {}).get("killed"))


def _read_failure(folder: RunFolder) -> dict[str, Any] | None:
    try:
        return read_json(folder.failure)
    except StoreError:
        return None


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log; none where there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return []
    return [printable(line) for line in lines[-count:]]


def provenance_of(folder: RunFolder) -> dict[str, Any] | None:
    """What carried a run out; None where that is not known, or not any more."""
    try:
        return read_json(folder.provenance)
    except StoreError:
        return None


def process_mark() -> dict[str, Any]:
    """What tells this process from every other, here and elsewhere."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "born": _born(os.getpid())}


def is_alive(progress: dict[str, Any]) -> bool:
    """Whether the process that reported this progress still works on it."""
    if progress.get("phase") == "left":
        return False
    if progress.get("host") != socket.gethostname():
        return time.time() - float(progress.get("time", 0.0)) < HEARTBEAT_SECONDS
    born = _born(int(progress.get("pid", -1)))
    reported = progress.get("born")
    return born is not None and reported is not None and abs(born - reported) < CLOCK_SECONDS


def _born(pid: int) -> float | None:
    """When the process started; a recycled pid starts at another time."""
    import psutil  # read by `status` alone, so not paid for by others

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, ValueError):
        return None
