"""Leases: the exclusive right to work on a run, which expires when its holder dies.

A lease is filelock's `SoftFileLease`: a file that names host, process, its start time and a random
token, and that the holder touches every few seconds. A lease whose process is gone is taken over at
once. A lease that is not touched for the whole term, because its holder is stopped or its host is
lost, is taken over after the term. A holder that comes back must not publish anything: it calls
`check` before each write.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import SoftFileLease, Timeout

# Without a heartbeat, before another process may take over; the same for all contenders
TERM_SECONDS = 60.0
_POLL_SECONDS = 0.2
_EXCHANGE_SECONDS = 0.05  # a contender that inspects a lease may move the file aside for this long
# message of a lost lease
TAKEN_OVER = "another process has taken over this run; this one writes nothing more"


class LeaseLost(Exception):  # noqa: N818
    """Another process has taken over the run; this one must not write to it."""


class Lease:
    """A contender for one lease file; it measures how long the holder is silent."""

    def __init__(self, path: Path, term: float | None = None) -> None:
        """Prepare to take a lease; `term` is in seconds, None for the default."""
        self.term = TERM_SECONDS if term is None else term
        # The lease is the process's, whichever of its threads takes, checks or releases it.
        self._lease = SoftFileLease(
            path,
            lease_duration=self.term,
            thread_local=False,
            poll_interval=_POLL_SECONDS,
            timeout=0,
        )
        self._path = path
        # (inode, ctime) of an empty file, and when it was first seen
        self._empty: tuple[tuple[int, int], float] | None = None

    def try_to_take(self) -> bool:
        """Take the lease if it is free.

        Raises:
            OSError: the disk refused.
        """
        try:
            # Does not wait, since its timeout is 0: a caller has other work while a run is busy.
            self._lease.acquire()
        except Timeout:
            self._remove_empty()
            return False
        return True

    def _remove_empty(self) -> None:
        """Remove a file that has been empty for the whole term, since the library would wait
        forever.

        A kill between creating the file and its first byte leaves one.
        """
        try:
            stat = self._path.lstat()
        except OSError:
            return
        # With the time of the change, because a new file may get the inode of a removed one.
        which = (stat.st_ino, stat.st_ctime_ns)
        now = time.monotonic()
        if stat.st_size or self._empty is None or self._empty[0] != which:
            self._empty = None if stat.st_size else (which, now)
        elif now - self._empty[1] >= self.term:
            with suppress(OSError):
                self._path.unlink()

    def release(self) -> None:
        """Release the lease; no effect if another process has taken over."""
        self._lease.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the lease, and hold it inside the context."""
        while not self.try_to_take():
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            self.release()

    @property
    def is_lost(self) -> bool:
        """Whether the heartbeat has noticed a loss; cheap enough for every step."""
        return self._lease.compromise is not None

    def check(self) -> None:
        """Verify by the file itself that this process still holds the lease.

        Raises:
            LeaseLost: another process holds it.
        """
        if not self.is_lost and self._is_ours():
            return
        # A contender may be inspecting the file at this moment: read once more.
        time.sleep(_EXCHANGE_SECONDS)
        if self.is_lost or not self._is_ours():
            raise LeaseLost(str(self._path))

    def _is_ours(self) -> bool:
        token = self._lease.token
        try:
            return token is not None and token in self._path.read_text("utf-8", "replace")
        except OSError:
            return False
