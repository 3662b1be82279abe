"""Identify the process that works on a run, and tell whether it still works."""

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
    """Number of this process's PID namespace; None on systems other than Linux."""
    # Containers on one host may have the same host name, and each container has a process 1.
    try:
        return PID_NAMESPACE.stat().st_ino
    except OSError:
        return None


def is_here(process: ProcessMark) -> bool:
    """Whether the id of a process can be looked up here: on this host, and in this container."""
    return process.host == socket.gethostname() and process.namespace in (None, _pid_namespace())


def start_time(pid: int) -> float | None:
    """Start time of a process of this host, in seconds since the epoch; None if there is no such
    process.
    """
    import psutil  # here, because only `ablate status` and workers need it

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, ValueError):
        return None


def is_working(process: ProcessMark, last_report: float) -> bool:
    """Whether a process still works.

    Args:
        process: the process. On this host, it works if it still runs.
        last_report: time of its last report, in seconds since the epoch. On another host, the
            process works if the report is recent.
    """
    if not is_here(process):
        # Also if the report is from the future: after a clock was set back, an old report must not
        # count as recent until the clock has caught up.
        return abs(time.time() - last_report) < HEARTBEAT_SECONDS
    # The system reuses process ids: a process with another start time is another process.
    born = start_time(process.pid)
    return (
        born is not None and process.born is not None and abs(born - process.born) < CLOCK_SECONDS
    )
