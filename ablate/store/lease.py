"""Leases: the exclusive right to work on a run, which expires when its holder dies.

A lease is filelock's `SoftFileLease`: a file with the host, the process, its start time and a
random token. The holder touches the file every few seconds (the heartbeat). If the process of the
holder is gone, another process takes over the lease at once. If the file is no longer touched,
because the holder is suspended or its host is lost, another process takes over the lease after a
term. A holder that wakes up after that must not write; so it calls `check` before each write.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import SoftFileLease, Timeout

# The term: time without a heartbeat after which another process may take over. It must be the same
# for all processes.
TERM_SECONDS = 60.0
_POLL_SECONDS = 0.2
_INSPECTION_SECONDS = 0.05  # a process that inspects a lease may move the file away for this long
TAKEN_OVER = "another process has taken over this run; this process writes nothing more"


class LeaseLost(Exception):  # noqa: N818
    """Another process has taken over the run; this process must not write to it."""


class Lease:
    """Access of this process to a lease file. It measures for how long another holder is silent."""

    def __init__(self, path: Path, term: float | None = None) -> None:
        """Prepare to take a lease; `term` is in seconds, None for the default."""
        self.term = TERM_SECONDS if term is None else term
        # All threads of the process share the lease.
        self._lease = SoftFileLease(
            path,
            lease_duration=self.term,
            thread_local=False,
            poll_interval=_POLL_SECONDS,
            timeout=0,
        )
        self._path = path
        # (inode, ctime) of an empty file, and the time when it was first seen
        self._empty: tuple[tuple[int, int], float] | None = None

    def try_to_take(self) -> bool:
        """Take the lease if it is free, and return whether it was.

        Raises:
            OSError: the disk refused.
        """
        try:
            self._lease.acquire()  # does not wait, because the timeout is 0
        except Timeout:
            self._remove_empty()
            return False
        return True

    def _remove_empty(self) -> None:
        """Remove a file that has been empty for the whole term.

        A kill between creating the file and writing to it leaves an empty file, for which the
        library would wait forever.
        """
        try:
            stat = self._path.lstat()
        except OSError:
            return
        if stat.st_size:
            self._empty = None
            return
        # With the time of creation, because a new file may get the inode of a removed file.
        identity = (stat.st_ino, stat.st_ctime_ns)
        now = time.monotonic()
        if self._empty is None or self._empty[0] != identity:
            self._empty = (identity, now)
            return
        _, first_seen = self._empty
        if now - first_seen >= self.term:
            with suppress(OSError):
                self._path.unlink()

    def release(self) -> None:
        """Release the lease; no effect if another process has taken over."""
        self._lease.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the lease, and hold it during the context."""
        while not self.try_to_take():
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            self.release()

    @property
    def is_lost(self) -> bool:
        """Whether the heartbeat has noticed that the lease is lost. Reads no file, so that it can
        be called at every step.
        """
        return self._lease.compromise is not None

    def check(self) -> None:
        """Read the file to verify that this process still holds the lease.

        Raises:
            LeaseLost: another process holds it.
        """
        if not self.is_lost and self._is_ours():
            return
        # Another process may be inspecting the file at this moment, so read it once more.
        time.sleep(_INSPECTION_SECONDS)
        if self.is_lost or not self._is_ours():
            raise LeaseLost(str(self._path))

    def _is_ours(self) -> bool:
        token = self._lease.token
        try:
            return token is not None and token in self._path.read_text("utf-8", "replace")
        except OSError:
            return False
