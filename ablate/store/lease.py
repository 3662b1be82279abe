"""The right to work on something, which ends by itself when its holder does.

A lease is filelock's `SoftFileLease`: a file that names host, process, its start and a random token,
and that the holder touches every few seconds. One whose process is gone is taken over at once; one
that is not touched for the whole term, because its holder is stopped or on a lost machine, is taken
over then. A holder that comes back must not publish: it calls `check` before it does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import SoftFileLease, Timeout

TERM_SECONDS = 60.0  # without a sign of life, before another may take it; the same for all contenders
_POLL_SECONDS = 0.2
_EXCHANGE_SECONDS = 0.05  # a contender that looks at a lease may move it aside for as long


class LeaseLost(Exception):  # noqa: N818
    """Another has taken over: whatever is still to be written is not ours to write."""


class Lease:
    """A contender for one lease file. Keep it between tries: it is how long the holder has been silent for it."""

    def __init__(self, path: Path) -> None:
        self._lease = SoftFileLease(
            path, lease_duration=TERM_SECONDS, thread_local=False, poll_interval=_POLL_SECONDS, timeout=0
        )
        self._path = path
        self._empty: tuple[tuple[int, int], float] | None = None  # an empty file, and since when it was seen

    def try_to_take(self) -> bool:
        """Take it if it is free.

        Raises:
            OSError: the disk refused.
        """
        try:
            self._lease.acquire()
        except Timeout:
            self._remove_empty()
            return False
        return True

    def _remove_empty(self) -> None:
        """Remove a file that has been empty for the whole term: the library would wait for its holder for ever.

        A kill between the making of the file and its first byte leaves one.
        """
        try:
            stat = self._path.lstat()
        except OSError:
            return
        which, now = (stat.st_ino, stat.st_ctime_ns), time.monotonic()
        if stat.st_size or self._empty is None or self._empty[0] != which:
            self._empty = None if stat.st_size else (which, now)
        elif now - self._empty[1] >= TERM_SECONDS:
            with suppress(OSError):
                self._path.unlink()

    def release(self) -> None:
        """Give it back; without effect on one that another has taken over."""
        self._lease.release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for it, and hold it meanwhile."""
        while not self.try_to_take():
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            self.release()

    @property
    def is_lost(self) -> bool:
        """Whether the heartbeat has noticed a loss: cheap enough to ask at every step."""
        return self._lease.compromise is not None

    def check(self) -> None:
        """Make sure, by the file itself, that it is still ours.

        Raises:
            LeaseLost: it is not.
        """
        if not self.is_lost and self._names_us():
            return
        time.sleep(_EXCHANGE_SECONDS)
        if self.is_lost or not self._names_us():
            raise LeaseLost(str(self._path))

    def _names_us(self) -> bool:
        token = self._lease.token
        try:
            return token is not None and token in self._path.read_text("utf-8", "replace")
        except OSError:
            return False
