"""The process that works on a run: which one it is, and whether it still works."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from ablate.store.records import ProcessMark

PID_NAMESPACE = Path("/proc/self/ns/pid")
# A process on another host counts as dead if its last report is older than this.
HEARTBEAT_SECONDS = 120.0
# Tolerance for start times: the system derives them from a clock that may be set.
CLOCK_SECONDS = 2.0


def process_mark() -> ProcessMark:
    """Identify this process, here and on other hosts."""
    pid = os.getpid()
    return ProcessMark(
        host=socket.gethostname(), pid=pid, born=start_time(pid), namespace=_pid_namespace()
    )


def _pid_namespace() -> int | None:
    """Number of the namespace of this process's id; None where there are none (not Linux)."""
    # Containers may share the name of their host, and each has its own process 1.
    try:
        return PID_NAMESPACE.stat().st_ino
    except OSError:
        return None


def is_here(process: ProcessMark) -> bool:
    """Whether the id of a process can be looked up: it is of this host, and of this container."""
    return process.host == socket.gethostname() and process.namespace in (None, _pid_namespace())


def start_time(pid: int) -> float | None:
    """Start of a process of this host, in seconds since the epoch, since ids are recycled."""
    import psutil  # only `status` and workers need it

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, ValueError):
        return None


def is_working(process: ProcessMark, last_report: float) -> bool:
    """Whether a process still works: by its start time if it can be looked up here, else by the age
    of its last report, whose time is in seconds since the epoch.
    """
    if not is_here(process):
        # Either way: a clock that was set while the process worked is no sign of life for as long.
        return abs(time.time() - last_report) < HEARTBEAT_SECONDS
    # The system reuses ids: a process that started at another time is another process.
    born = start_time(process.pid)
    return (
        born is not None and process.born is not None and abs(born - process.born) < CLOCK_SECONDS
    )
