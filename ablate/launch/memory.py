"""Whether the system has ended a process for want of memory."""

from __future__ import annotations

from pathlib import Path

COUNTS = Path("/proc/vmstat")


def memory_killings() -> int | None:
    """How many processes the system has ended since it started, for want of memory; None where it does not tell.

    A worker that is killed while this grows was one of them. Without it, a kill by the system and one by a
    person look the same, and only the first is a reason for smaller micro-batches.
    """
    try:
        lines = COUNTS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
