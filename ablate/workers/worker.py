"""A worker process: reads assignments from standard input and writes events to standard output,
each as a line of JSON.

An executor starts a worker with `python -m ablate.workers.worker`. The worker writes `ready` when
its libraries are loaded, and executes one assignment after another, so that torch is loaded only
once. It saves and exits on SIGTERM or SIGINT, when it loses the lease of its run, and when its
standard input ends, which means that the launcher is gone. An empty line means that no more
assignments follow: the worker finishes the assignments that it has received, and exits.

An executor that manages its own processes, such as Ray's, calls `execute_if_free` instead.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import torch

from ablate.errors import EXIT_INTERRUPTED, Interrupted, StoreError
from ablate.formatting import first_line, type_and_line, without_secrets
from ablate.store import RunFolder, none_if_unreadable
from ablate.store.lease import TAKEN_OVER, Lease, LeaseLost
from ablate.store.status import record_failure
from ablate.training import RunHooks
from ablate.workers.assignment import (
    NO_MORE_ASSIGNMENTS,
    READY,
    Assignment,
    EventOutcome,
    WorkerEvent,
)
from ablate.workers.execution import OtherDevice
from ablate.workers.pipeline import execute


class _Assignments:
    """Assignments from standard input. A thread reads it, to notice its end during a run."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="assignments", daemon=True).start()

    def _read(self) -> None:
        # A duplicate, because this thread would hold the lock of sys.stdin when Python exits.
        with os.fdopen(os.dup(0), encoding="utf-8") as stream:
            for line in stream:
                if line == NO_MORE_ASSIGNMENTS:
                    self.lines.put(None)
                    return
                self.lines.put(line)
        self.stop.set()
        self.lines.put(None)

    def __iter__(self) -> _Assignments:
        return self

    def __next__(self) -> Assignment:
        while True:
            try:
                # With a timeout: a signal handler only sets `stop`, and does not interrupt get().
                line = self.lines.get(timeout=1.0)
            except queue.Empty:
                if self.stop.is_set():
                    raise StopIteration from None
                continue
            if line is None:
                raise StopIteration
            return Assignment.from_line(line)


def main() -> int:
    """Execute assignments until standard input ends."""
    stop = threading.Event()  # set by a signal, or when standard input ends
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # exp of a very small logit is a denormal number, which a CPU computes 100 times as slowly.
    torch.set_flush_denormal(True)
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries goes to standard error, so that it does not mix with events
    leases: dict[str, Lease] = {}  # of runs that others hold; see `execute_if_free`
    try:
        events.write(READY)
    except BrokenPipeError:
        return EXIT_INTERRUPTED
    for assignment in _Assignments(stop):
        event = execute_if_free(assignment, stop.is_set, leases, log_descriptors=(1, 2))
        try:
            events.write(event.to_line())
        except BrokenPipeError:
            return EXIT_INTERRUPTED
        if stop.is_set():
            return EXIT_INTERRUPTED
        if event.outcome == "failed":
            return 0  # the cause may lie in this process, so the next run gets a new process
    return 0


def execute_if_free(
    assignment: Assignment,
    stop: Callable[[], bool],
    leases: dict[str, Lease],
    log_descriptors: Sequence[int] = (),
) -> WorkerEvent:
    """Execute an assignment, unless another process holds the lease of its run.

    Every outcome is returned as an event. A failure is recorded in the run's folder too.

    Args:
        assignment: the assignment.
        stop: called at each step; returns whether to save and stop.
        leases: leases of runs that other processes hold, by id. A lease measures for how long its
            holder has been silent, so pass the same dictionary, empty at first, to all calls.
        log_descriptors: file descriptors that are redirected to the run's log during the
            assignment, such as 2 for messages of libraries.
    """
    folder = RunFolder(assignment.run.folder)
    lease = leases.setdefault(folder.id, Lease(folder.lease))
    try:
        if not lease.try_to_take():
            return WorkerEvent(run=folder.id, outcome="held")
        del leases[folder.id]  # no other process holds the run any more
        try:
            return _execute_leased(
                assignment, folder, lambda: stop() or lease.is_lost, lease, log_descriptors
            )
        finally:
            lease.release()
    except Exception as error:  # the disk refused the lease or the log
        return WorkerEvent(run=folder.id, outcome="failed", reason=failure_reason(error, folder))


def _execute_leased(
    assignment: Assignment,
    folder: RunFolder,
    stop: Callable[[], bool],
    lease: Lease,
    log_descriptors: Sequence[int],
) -> WorkerEvent:
    """Execute an assignment while holding the lease of its run, and record a failure."""
    earlier_failure = none_if_unreadable(folder.read_failure)  # the execution replaces the file
    with (
        folder.log.open("a", encoding="utf-8") as file,
        _redirected(log_descriptors, file.fileno()),
    ):
        log = run_logger(file.fileno())
        try:
            outcome: EventOutcome = execute(assignment, RunHooks(log, lease.check, stop))
            return WorkerEvent(run=folder.id, outcome=outcome)
        except Interrupted:
            return WorkerEvent(run=folder.id, outcome="interrupted")
        except LeaseLost:
            log.warning(TAKEN_OVER)
            return WorkerEvent(run=folder.id, outcome="held")
        except (
            OtherDevice
        ) as error:  # not a failure: a launcher with that device can finish the run
            log.info("%s", error)
            return WorkerEvent(run=folder.id, outcome="unsuitable", reason=str(error))
        except (Exception, SystemExit) as error:  # a user's class may call sys.exit
            log.error(traceback.format_exc().rstrip())
            reason = failure_reason(error, folder)
            # If the folder or the disk is gone, the launcher still gets the reason.
            with suppress(LeaseLost, OSError):
                lease.check()
                record_failure(folder, reason, earlier_failure, kind=type(error).__name__)
            return WorkerEvent(run=folder.id, outcome="failed", reason=reason)


@contextmanager
def _redirected(descriptors: Sequence[int], target: int) -> Iterator[None]:
    """Redirect file descriptors to a target during the context."""
    saved = [(descriptor, os.dup(descriptor)) for descriptor in descriptors]
    try:
        for descriptor in descriptors:
            os.dup2(target, descriptor)
        yield
    finally:
        for descriptor, copy in saved:
            os.dup2(copy, descriptor)
            os.close(copy)


class _LogFile(logging.Handler):
    """Writes log records to a file descriptor. A full disk loses lines, but never ends the run."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            os.write(self.descriptor, f"{self.format(record)}\n".encode(errors="replace"))


def run_logger(descriptor: int) -> logging.Logger:
    """The logger `ablate.run`, which writes to the log file of a run."""
    logger = logging.getLogger("ablate.run")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [_LogFile(descriptor)]
    return logger


def failure_reason(error: BaseException, folder: RunFolder) -> str:
    """Describe a failure in one line."""
    if isinstance(error, OSError) and error.strerror:
        return (
            f"{error.filename or folder.path}: {error.strerror}; the run resumes from its last "
            f"checkpoint"
        )
    is_ours = isinstance(error, StoreError)
    return without_secrets(first_line(error) if is_ours else type_and_line(error))


if __name__ == "__main__":
    sys.exit(main())
