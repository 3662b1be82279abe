"""A worker process: jobs on standard input, events on standard output, one JSON line each.

An executor starts it with `python -m ablate.workers.worker`. Its first line is `ready`, once its
libraries are loaded. It executes one job after another, so that torch is loaded once. It saves and
leaves on SIGTERM or SIGINT, when it loses the lease of its run, and when its standard input ends,
because the launcher that would read its events is gone. An empty line instead of a job means that
no more follow: the worker finishes the jobs before it, and exits.

An executor that does not use this process calls `execute_if_free` in one of its own.
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

from ablate.errors import EXIT_INTERRUPTED, Interrupted, StoreError, without_secrets
from ablate.store import RunFolder, if_readable
from ablate.store.lease import TAKEN_OVER, Lease, LeaseLost
from ablate.store.status import record_failure
from ablate.training import RunContext
from ablate.workers.execution import OtherDevice
from ablate.workers.job import NO_MORE_JOBS, READY, EventOutcome, Job, JobEvent
from ablate.workers.pipeline import execute


class _Jobs:
    """Jobs from standard input, read in a thread so that its end is noticed while a job runs."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="jobs", daemon=True).start()

    def _read(self) -> None:
        # Not sys.stdin: at exit, Python would wait for the lock that this thread holds on it.
        with os.fdopen(os.dup(0), encoding="utf-8") as stream:
            for line in stream:
                if line == NO_MORE_JOBS:
                    self.lines.put(None)
                    return
                self.lines.put(line)
        self.stop.set()
        self.lines.put(None)

    def __iter__(self) -> _Jobs:
        return self

    def __next__(self) -> Job:
        while True:
            try:
                # With a timeout: a signal handler only sets a flag, and get() would go on.
                line = self.lines.get(timeout=1.0)
            except queue.Empty:
                if self.stop.is_set():
                    raise StopIteration from None
                continue
            if line is None:
                raise StopIteration
            return Job.from_line(line)


def main() -> int:
    """Execute jobs until standard input ends."""
    stop = threading.Event()  # a signal came, or standard input has ended
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # The exp of a very unlikely logit is a denormal, which costs 100 times as much.
    torch.set_flush_denormal(True)
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not be taken for an event
    # Of runs that other workers hold: each measures how long its holder is silent.
    leases: dict[str, Lease] = {}
    try:
        events.write(READY)
    except BrokenPipeError:
        return EXIT_INTERRUPTED
    for job in _Jobs(stop):
        event = execute_if_free(job, stop.is_set, leases, to_log=(1, 2))
        try:
            events.write(event.to_line())
        except BrokenPipeError:
            return EXIT_INTERRUPTED
        if stop.is_set():
            return EXIT_INTERRUPTED
        if event.outcome == "failed":
            return 0  # the cause may still be in this process: the next run gets a fresh one
    return 0


def execute_if_free(
    job: Job, stop: Callable[[], bool], leases: dict[str, Lease], to_log: Sequence[int] = ()
) -> JobEvent:
    """Execute a job, unless another process holds the lease of its run.

    Every outcome, a failure too, is returned as an event. A failure is also recorded in the run's
    folder.

    Args:
        job: to execute.
        stop: whether to save and leave; called at each step.
        leases: of runs that were busy before, by id. Keep it between calls, and begin with an empty
            one.
        to_log: file descriptors that write to the run's log while the job is executed, such as 2
            for the messages of libraries.
    """
    folder = RunFolder(job.run.folder)
    # The same object at each try, since it measures how long the holder is silent.
    lease = leases.setdefault(folder.id, Lease(folder.lease))
    try:
        if not lease.try_to_take():
            return JobEvent(run=folder.id, outcome="busy")
        # The lease is taken, so the silence of an earlier holder no longer matters.
        del leases[folder.id]
        try:
            return _execute_leased(job, folder, lambda: stop() or lease.is_lost, lease, to_log)
        finally:
            lease.release()
    except Exception as error:  # the disk refused the lease or the log
        return JobEvent(run=folder.id, outcome="failed", reason=failure_reason(error, folder))


def _execute_leased(
    job: Job, folder: RunFolder, stop: Callable[[], bool], lease: Lease, to_log: Sequence[int]
) -> JobEvent:
    """Execute a job while holding the lease of its run; a failure is recorded."""
    before = if_readable(folder.read_failure)  # which the execution replaces
    with folder.log.open("a", encoding="utf-8") as file, _redirected(to_log, file.fileno()):
        log = run_logger(file.fileno())
        try:
            outcome: EventOutcome = execute(job, RunContext(log, lease.check, stop))
            return JobEvent(run=folder.id, outcome=outcome)
        except Interrupted:
            return JobEvent(run=folder.id, outcome="interrupted")
        except LeaseLost:
            log.warning(TAKEN_OVER)
            return JobEvent(run=folder.id, outcome="busy")
        except OtherDevice as error:  # another launcher can finish the run, so this is no failure
            log.info("%s", error)
            return JobEvent(run=folder.id, outcome="unsuitable", reason=str(error))
        except (Exception, SystemExit) as error:  # a plug-in may exit
            log.error(traceback.format_exc().rstrip())
            reason = failure_reason(error, folder)
            # The folder or the disk may be gone; the launcher learns the reason anyway.
            with suppress(LeaseLost, OSError):
                lease.check()
                record_failure(folder, reason, before, kind=type(error).__name__)
            return JobEvent(run=folder.id, outcome="failed", reason=reason)


@contextmanager
def _redirected(descriptors: Sequence[int], target: int) -> Iterator[None]:
    """Let descriptors write to a target inside the context."""
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
    """Writes records to a descriptor; a full disk loses lines, and never ends a run."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            os.write(self.descriptor, f"{self.format(record)}\n".encode(errors="replace"))


def run_logger(descriptor: int) -> logging.Logger:
    """The logger `ablate.run`, writing to a run's log file."""
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
    line = without_secrets((str(error).strip().splitlines() or [""])[0])
    return line if isinstance(error, StoreError) else f"{type(error).__name__}: {line}"


if __name__ == "__main__":
    sys.exit(main())
