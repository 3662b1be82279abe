"""The scheduler: gives runs to an executor until none is left, and tries again those whose worker died."""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Protocol

from ablate.errors import Interrupted
from ablate.launch.executor import Executor, Lost, Slot
from ablate.run.job import Job, JobEvent
from ablate.store import RunFolder
from ablate.store.records import Failure

TICK_SECONDS = 0.5
MAX_DEATHS = 3  # of workers with one run, before the run counts as failed
BUSY_SECONDS = 2.0  # between two looks at a run that another process holds


class Watcher(Protocol):
    """Receives the events of a launch."""

    def started(self, run: str) -> None:
        """A run was submitted."""

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """A run is done, diverged or failed; `reason` is the worker's, for a failure."""

    def tick(self) -> None:
        """Called about twice a second."""


class Scheduler:
    """Executes runs, as many at once as the executor has slots."""

    def __init__(
        self,
        executor: Executor,
        job_for: Callable[[str, Slot, bool], Job],
        folder_of: Callable[[str], RunFolder],
        outcome_of: Callable[[str], str | None],
        watcher: Watcher,
    ) -> None:
        """Prepare for scheduling.

        Args:
            executor: runs the jobs.
            job_for: makes the job of a run in a slot; the flag asks for half the micro-batch.
            folder_of: the folder of a run.
            outcome_of: the outcome of a run by its files, whoever executed it; None if it is missing.
            watcher: receives events.
        """
        self.executor, self.job_for, self.folder_of = executor, job_for, folder_of
        self.outcome_of, self.watcher = outcome_of, watcher
        self.queue: deque[str] = deque()
        self.submitted: dict[str, Slot] = {}  # by run
        self.busy: dict[str, float] = {}  # runs that other processes hold, and when to look again
        self.deaths: Counter[str] = Counter()
        self.broken: set[str] = set()  # runs of which a worker died by itself
        self.starved: set[str] = set()  # runs whose last worker was killed for want of memory
        self.stopping = 0

    def run(self, runs: Sequence[str]) -> None:
        """Execute these runs, in this order.

        Raises:
            Interrupted: a signal came; the state of every run is saved.
        """
        self.queue.extend(runs)
        handlers = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while self.submitted or (not self.stopping and (self.queue or self.busy)):
                self._submit()
                for event in self.executor.events(TICK_SECONDS):
                    if isinstance(event, Lost):
                        self._on_lost(event)
                    else:
                        self._on_event(event)
                self.watcher.tick()
        finally:
            self.executor.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self.stopping:
            raise Interrupted

    def _submit(self) -> None:
        """Fill the free slots."""
        self._look_at_busy()
        occupied = {slot.name for slot in self.submitted.values()}
        for slot in self.executor.slots():
            if slot.name not in occupied and (run := self._next_missing()) is not None:
                job = self.job_for(run, slot, run in self.starved)
                self.starved.discard(run)
                self.submitted[run] = slot
                self.executor.submit(job, slot)
                self.watcher.started(run)

    def _next_missing(self) -> str | None:
        """The next run of the queue that no other launcher has finished meanwhile."""
        while self.queue and not self.stopping:
            run = self.queue.popleft()
            outcome = self.outcome_of(run)
            if outcome in (None, "failed"):
                return run
            self.watcher.finished(run, str(outcome))
        return None

    def _look_at_busy(self) -> None:
        now = time.monotonic()
        for run in [run for run, when in self.busy.items() if when <= now]:
            del self.busy[run]
            outcome = self.outcome_of(run)
            if outcome is not None:
                self.watcher.finished(run, outcome)
            else:
                self.queue.append(run)

    def _on_event(self, event: JobEvent) -> None:
        del self.submitted[event.run]
        if event.outcome == "busy":
            self.busy[event.run] = time.monotonic() + BUSY_SECONDS
        elif event.outcome != "interrupted":
            self.watcher.finished(event.run, event.outcome, event.reason)
        elif not self.stopping:  # somebody has stopped the worker alone
            self._retry(event.run, "the worker was asked to stop")

    def _on_lost(self, lost: Lost) -> None:
        del self.submitted[lost.run]
        if self.stopping:
            return
        if lost.out_of_memory:
            self.starved.add(lost.run)
        if not lost.from_outside:
            self.broken.add(lost.run)
        self._retry(lost.run, lost.reason)

    def _retry(self, run: str, reason: str) -> None:
        """Queue a run again, which resumes from its checkpoint; after several deaths it has failed.

        If each worker was ended from outside, the next launch tries again without being asked.
        """
        self.deaths[run] += 1
        if self.deaths[run] < MAX_DEATHS:
            self.queue.appendleft(run)
            return
        failure = Failure(reason=reason, killed=run not in self.broken, time=time.time())
        with suppress(OSError):  # on a full disk the other runs go on
            failure.write(self.folder_of(run).failure)
        self.watcher.finished(run, "failed", reason)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks all jobs to save and leave, the second ends them."""
        self.stopping += 1
        self.executor.cancel()
