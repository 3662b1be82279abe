"""The scheduler: gives runs to an executor, and starts a run again if its worker has died."""

from __future__ import annotations

import math
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from ablate.errors import Interrupted
from ablate.launch.executor import Executor, Lost, Slot
from ablate.store import RunFolder, none_if_unreadable
from ablate.store.status import add_line, record_failure
from ablate.workers.job import Job, JobEvent

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus

TICK_SECONDS = 0.5
MAX_DEATHS = 3  # number of workers that may die during a run, before the run counts as failed
# Seconds between two checks of a run that another launcher holds: first and largest value. The time
# doubles with each check: if many launchers share a results root, most runs are held, and each
# check reads files.
HELD_SECONDS = 2.0
MAX_HELD_SECONDS = 60.0


class Watcher(Protocol):
    """Receives the events of a launch. Runs are named by their ids."""

    def announce(self, corpus: Corpus, slots: Sequence[Slot], missing: int) -> None:
        """Called before the first run starts.

        Args:
            corpus: corpus of base.
            slots: all slots.
            missing: number of runs to execute.
        """

    def log(self, line: str) -> None:
        """Called with lines about the preparation of corpora, and about repairs of damage."""

    def started(self, run: str) -> None:
        """Called when a run is submitted."""

    def held(self, run: str) -> None:
        """Called when another launcher holds a submitted run. It is submitted again later."""

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """Called when a run is done, diverged, failed, or unsuitable for this machine. `reason` is
        the one-line reason that the worker gave; empty without one.
        """

    def lost(self, run: str, reason: str) -> None:
        """Called when the worker of a run has died. The run starts again."""

    def tick(self) -> None:
        """Called about twice a second."""


class Control:
    """Decides when a launch starts runs, and when it ends. By default, it goes on until every run
    has ended.

    signals: signals that ask all jobs to save and leave.
    idle_seconds: seconds to wait for runs of other launchers, with no other work, before the launch
        ends.
    """

    signals: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    idle_seconds = math.inf

    def may_start(self) -> bool:
        """Whether another run may start. If not, the launch ends after the runs in progress."""
        return True

    def must_stop(self) -> bool:
        """Whether all jobs must save and leave now. Called about twice a second."""
        return False

    def on_signal(self, number: int) -> None:
        """Called with each signal."""


class Deadline(Control):
    """Starts runs until a deadline, such as the end of a budget."""

    def __init__(self, has_time: Callable[[], bool]) -> None:
        """Prepare; `has_time` is called before each run."""
        self.has_time = has_time

    def may_start(self) -> bool:
        """Whether there is time for another run to start."""
        return self.has_time()


class Scheduler:
    """Executes runs, one in each slot of an executor at a time."""

    def __init__(
        self,
        executor: Executor,
        job_for: Callable[[str, Slot, bool], Job],
        folder_of: Callable[[str], RunFolder],
        outcome_of: Callable[[str], str | None],
        watcher: Watcher,
        control: Control | None = None,
    ) -> None:
        """Prepare for scheduling. All functions take the id of a run.

        Args:
            executor: executes the jobs.
            job_for: makes a job from (run, slot, halved); `halved` asks for half the micro-batch.
            folder_of: the folder of a run.
            outcome_of: the outcome of a run as its files tell it, whichever launcher has executed
                it; None if the run is missing.
            watcher: receives the events.
            control: decides when runs start and when the launch ends.
        """
        self.executor = executor
        self.job_for = job_for
        self.folder_of = folder_of
        self.outcome_of = outcome_of
        self.watcher = watcher
        self.control = control or Control()
        self.queue: deque[str] = deque()
        self.submitted: dict[str, Slot] = {}  # slot by run
        self.held: dict[str, float] = {}  # time of the next check, by id of the held run
        self.checks: Counter[str] = Counter()  # number of checks, by id of the held run
        # Slot of the last check, by run. A run is checked by the same worker each time, because the
        # worker measures for how long the holder of the lease is silent.
        self.checked_in: dict[str, str] = {}
        self.last_event = time.monotonic()  # time when a job last ended here
        self.deaths: Counter[str] = Counter()  # number of workers that have died, by run
        self.crashed: set[str] = set()  # runs during which a worker crashed, without being killed
        self.starved: set[str] = set()  # runs whose last worker was killed for lack of memory
        self.stopping = False
        self.interrupts = 0  # number of times that SIGINT was received

    def run(self, runs: Sequence[str]) -> None:
        """Execute runs in the given order.

        Raises:
            Interrupted: a signal came; the state of every run is saved.
        """
        self.queue.extend(runs)
        handlers = {
            number: signal.signal(number, self._on_signal) for number in self.control.signals
        }
        self.last_event = time.monotonic()
        try:
            while self.submitted or self._may_continue():
                if not self.stopping and self.control.must_stop():
                    self._stop()
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

    def _may_continue(self) -> bool:
        """Whether to go on while no job is running, because further runs may start."""
        if self.stopping or not (self.queue or self.held) or not self.control.may_start():
            return False
        return time.monotonic() - self.last_event < self.control.idle_seconds

    def _submit(self) -> None:
        """Submit runs to the free slots."""
        occupied = {slot.name for slot in self.submitted.values()}
        free = [slot for slot in self.executor.slots() if slot.name not in occupied]
        if not free or self.stopping or not self.control.may_start():
            return
        self._requeue_held()
        for slot in free:
            if (run := self._next_missing(slot, {other.name for other in free})) is not None:
                job = self.job_for(run, slot, run in self.starved)
                self.starved.discard(run)
                self.submitted[run] = slot
                self.executor.submit(job, slot)
                self.watcher.started(run)

    def _next_missing(self, slot: Slot, free: set[str]) -> str | None:
        """Take the next run from the queue that is still missing; None if there is none for this
        slot.

        Runs that another launcher has finished in the meantime are dropped from the queue. A run
        that was last checked in another free slot is left to that slot.
        """
        for run in list(self.queue):
            if self.stopping:  # a signal has come since the loop began
                return None
            checked_in = self.checked_in.get(run)
            if checked_in != slot.name and checked_in in free:
                continue
            self.queue.remove(run)
            outcome = self.outcome_of(run)
            if outcome is None:
                return run
            self.watcher.finished(run, outcome)
        return None

    def _requeue_held(self) -> None:
        """Queue the runs of other launchers whose next check is due, unless they have ended."""
        now = time.monotonic()
        for run in [run for run, check_time in self.held.items() if check_time <= now]:
            del self.held[run]
            outcome = self.outcome_of(run)
            if outcome is not None:
                self.watcher.finished(run, outcome)
            else:
                self.queue.append(run)

    def _on_event(self, event: JobEvent) -> None:
        slot = self.submitted.pop(event.run)
        if event.outcome == "busy":
            # A check costs a job and several file operations, and a long training holds its lease
            # for hours. The exponent is bounded, because a float would overflow.
            now = time.monotonic()
            delay = min(MAX_HELD_SECONDS, HELD_SECONDS * 2.0 ** min(10, self.checks[event.run]))
            self.checks[event.run] += 1
            self.checked_in[event.run] = slot.name
            self.held[event.run] = min(now + delay, self._last_check(now))
            self.watcher.held(event.run)
            return
        self.last_event = time.monotonic()
        if event.outcome != "interrupted":
            self.watcher.finished(event.run, event.outcome, event.reason)
        elif not self.stopping:  # somebody has stopped only this worker
            self._retry(event.run, "the worker was asked to stop")

    def _last_check(self, now: float) -> float:
        """Time of the last check of held runs: shortly before this launch stops waiting for them.
        The later the check, the more surely it notices that the holder of a run has died.

        Infinite, which means no such check, while jobs are running here, and once the time is over.
        """
        last = self.last_event + self.control.idle_seconds - 3 * TICK_SECONDS
        return math.inf if self.submitted or last <= now else last

    def _on_lost(self, lost: Lost) -> None:
        del self.submitted[lost.run]
        self.last_event = time.monotonic()
        if self.stopping:
            return
        if lost.out_of_memory:
            self.starved.add(lost.run)
        if not lost.from_outside:
            self.crashed.add(lost.run)
        self._retry(lost.run, lost.reason)

    def _retry(self, run: str, reason: str) -> None:
        """Queue a run again, so that it resumes from its checkpoint; after `MAX_DEATHS` deaths,
        record that it has failed.

        If all its workers were killed from outside, the next launch tries the run again without
        --retry-failed.
        """
        self.deaths[run] += 1
        folder = self.folder_of(run)
        if self.deaths[run] < MAX_DEATHS:
            # At the front, so that a run that has begun ends before further runs begin.
            self.queue.appendleft(run)
            with suppress(OSError):
                add_line(folder.log, f"{reason}; started again")
            self.watcher.lost(run, reason)
            return
        with suppress(OSError):  # on a full disk, the other runs go on
            record_failure(
                folder,
                reason,
                none_if_unreadable(folder.read_failure),
                killed=run not in self.crashed,
            )
        self.watcher.finished(run, "failed", reason)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ask all jobs to save and leave at the first signal; kill them at a second SIGINT, which
        comes from the keyboard.

        Other repeated signals have no effect: a cluster sends several signals before it ends a job,
        and jobs must be able to save in spite of them.
        """
        self.control.on_signal(number)
        if number == signal.SIGINT:
            self.interrupts += 1
        if not self.stopping:
            self._stop()
        elif number == signal.SIGINT and self.interrupts > 1:
            self.executor.cancel()  # the second call kills

    def _stop(self) -> None:
        """Ask all jobs to save and leave, and start no further jobs."""
        self.stopping = True
        self.executor.cancel()
