"""Several processes, the ranks, for one run.

The first rank starts the other ranks, the followers, and sends them commands. It holds the lease,
writes all files, and is the only rank that an executor knows. The followers end with it, because
their standard input ends. If a follower dies, the first rank ends with the same exit code or
signal, because a collective operation would wait for the dead process forever. The executor then
treats the first rank as a dead worker.
"""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from ablate.interpreter import python_command
from ablate.kernels import ranks as collectives
from ablate.kernels.ranks import current_ranks, use_ranks
from ablate.workers.assignment import Assignment, RankCommand, RankStart

FOLLOWER = python_command("ablate.workers.follower")
POLL_SECONDS = 0.2
# After a failed collective operation: how long to wait for the operating system to report that a
# follower has died, which would explain the failure.
LOST_SECONDS = 2.0
LOOPBACK = Path("/sys/class/net/lo")


def send_command(command: RankCommand) -> None:
    """Send the followers the command for the stage that this rank begins, if there are any."""
    ranks = current_ranks()
    if ranks.size > 1:
        ranks.all_gather_objects(command.model_dump(mode="json"))


@contextmanager
def rank_group(
    assignment: Assignment, size: int, device: torch.device, log: logging.Logger
) -> Iterator[None]:
    """Start the followers of a run, and end them when the context ends."""
    if size == 1:
        yield
        return
    use_loopback()
    store = collectives.open_store()
    followers = _Followers(
        [
            RankStart(assignment=assignment, rank=i, size=size, port=store.port)
            for i in range(1, size)
        ],
        log,
    )
    try:
        with use_ranks(collectives.join(store, 0, size, device)):
            log.info("%d processes work on this run", size)
            yield
    except RuntimeError:
        followers.end_if_follower_died()
        raise
    finally:
        followers.close()
        with suppress(RuntimeError):  # the process group is broken if this rank has failed
            collectives.leave()


def use_loopback() -> None:
    """Let gloo use the loopback interface, because a host's name may not resolve to an address."""
    if LOOPBACK.exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK.name)


class _Followers:
    """The processes of the other ranks."""

    def __init__(self, starts: list[RankStart], log: logging.Logger) -> None:
        self.log = log
        self.closing = threading.Event()
        # In separate sessions, so that signals of a terminal reach only the first rank.
        self.processes = [
            subprocess.Popen(FOLLOWER, stdin=subprocess.PIPE, start_new_session=True)
            for _ in starts
        ]
        for process, start in zip(self.processes, starts, strict=True):
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # the process has died; the thread will notice
                process.stdin.write(start.to_line().encode())
                process.stdin.flush()
        threading.Thread(target=self._watch, name="ranks", daemon=True).start()

    def _watch(self) -> None:
        while not self.closing.wait(POLL_SECONDS):
            self._end_with_dead_follower()

    def end_if_follower_died(self) -> None:
        """End this process if a follower dies within `LOST_SECONDS`. Called after a collective
        operation has failed, for which a dead follower is the likely cause.
        """
        end = time.monotonic() + LOST_SECONDS
        while time.monotonic() < end:
            self._end_with_dead_follower()
            time.sleep(POLL_SECONDS / 10)

    def _end_with_dead_follower(self) -> None:
        """End this process by the exit code or signal of the first follower that has died."""
        for rank, process in enumerate(self.processes, 1):
            code = process.poll()
            if code is not None and not self.closing.is_set():
                self.log.error(
                    "rank %d has ended with exit code %d; all other ranks end too", rank, code
                )
                if code < 0:  # ended by a signal
                    os.kill(os.getpid(), -code)
                    time.sleep(POLL_SECONDS)  # in case this process ignores the signal
                os._exit(max(1, code))

    def close(self) -> None:
        """End all followers."""
        self.closing.set()
        for process in self.processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
        for process in self.processes:
            process.kill()  # its results are not needed any more
            process.wait()
