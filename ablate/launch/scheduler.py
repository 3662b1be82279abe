"""The scheduler: gives runs to an executor, and repeats a run whose worker died."""

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
MAX_DEATHS = 3  # number of workers that may die with a run before the run counts as failed
# The time between two checks of a run that another process holds doubles from the first of these
# numbers to the second: with many launchers, most runs are held, and each check reads files.
BUSY_SECONDS = 2.0
MAX_BUSY_SECONDS = 60.0


class Watcher(Protocol):
    """Receives the steps of the preparation, and then the events of the launch."""

    def announce(self, corpus: Corpus, slots: Sequence[Slot], missing: int) -> None:
        """The first run is about to start.

        Args:
            corpus: base's corpus.
            slots: all slots.
            missing: number of runs to execute.
        """

    def log(self, line: str) -> None:
        """A step in the preparation of a corpus, or a damage that is repaired."""

    def started(self, run: str) -> None:
        """A run was submitted."""

    def held(self, run: str) -> None:
        """Another launcher holds a run that was submitted; it is submitted again later."""

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """A run is done, diverged or failed, or cannot continue on this device; `reason` is the
        worker's message.
        """

    def lost(self, run: str, reason: str) -> None:
        """The worker of a run has died; the run starts again."""

    def tick(self) -> None:
        """Called about twice a second."""


class Control:
    """Decides when a launch starts runs and when it ends. This base class lets it go on until every
    run has ended.

    signals: signals on which all jobs save and leave.
    idle_seconds: seconds that the launch waits for runs of other launchers before it ends.
    """

    signals: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    idle_seconds = math.inf

    def may_start(self) -> bool:
        """Whether to start another run. If not, the launch ends after the runs in progress."""
        return True

    def must_stop(self) -> bool:
        """Whether all jobs must save and leave now; asked about twice a second."""
        return False

    def on_signal(self, number: int) -> None:
        """Called with each signal."""


class Deadline(Control):
    """Lets runs start until a deadline, such as the end of a budget."""

    def __init__(self, has_time: Callable[[], bool]) -> None:
        """Prepare; `has_time` is called before each run."""
        self.has_time = has_time

    def may_start(self) -> bool:
        """Whether there is time for another run to start."""
        return self.has_time()


class Scheduler:
    """Executes runs, as many at once as the executor has slots."""

    def __init__(
        self,
        executor: Executor,
        job_for: Callable[[str, Slot, bool], Job],
        folder_of: Callable[[str], RunFolder],
        outcome_of: Callable[[str], str | None],
        watcher: Watcher,
        control: Control | None = None,
    ) -> None:
        """Prepare for scheduling.

        Args:
            executor: executes the jobs.
            job_for: makes the job of a run in a slot; its flag asks for half the micro-batch.
            folder_of: the folder of a run.
            outcome_of: the outcome of a run by its files, whichever launcher executed it; None if
                the run is missing.
            watcher: receives the events.
            control: decides when runs start and when the launch ends.
        """
        self.control = control or Control()
        self.executor, self.job_for, self.folder_of = executor, job_for, folder_of
        self.outcome_of, self.watcher = outcome_of, watcher
        self.queue: deque[str] = deque()
        self.submitted: dict[str, Slot] = {}  # by run
        self.busy: dict[str, float] = {}  # runs of other launchers -> time of the next check
        self.checks: Counter[str] = Counter()  # number of checks of a busy run
        # Busy run -> slot of its check. Only the worker that has checked a lease before can measure
        # how long its holder has been silent.
        self.checked_in: dict[str, str] = {}
        self.last_event = time.monotonic()  # when a job last ended here
        self.deaths: Counter[str] = Counter()
        self.broken: set[str] = set()  # runs with a worker that crashed
        self.starved: set[str] = set()  # runs whose last worker was killed for lack of memory
        self.stopping = False
        self.interrupts = 0

    def run(self, runs: Sequence[str]) -> None:
        """Execute these runs, in this order.

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
        """Whether to wait for more work while no job is running."""
        if self.stopping or not (self.queue or self.busy) or not self.control.may_start():
            return False
        return time.monotonic() - self.last_event < self.control.idle_seconds

    def _submit(self) -> None:
        """Fill the free slots."""
        occupied = {slot.name for slot in self.submitted.values()}
        free = [slot for slot in self.executor.slots() if slot.name not in occupied]
        if not free or self.stopping or not self.control.may_start():
            return
        self._check_busy()
        for slot in free:
            if (run := self._next_missing(slot, {place.name for place in free})) is not None:
                job = self.job_for(run, slot, run in self.starved)
                self.starved.discard(run)
                self.submitted[run] = slot
                self.executor.submit(job, slot)
                self.watcher.started(run)

    def _next_missing(self, slot: Slot, free: set[str]) -> str | None:
        """Take the next run for a slot from the queue. Runs that another launcher has finished are
        reported.

        A busy run that was checked in another free slot is left to that slot.
        """
        for run in list(self.queue):
            if self.stopping:
                return None
            if self.checked_in.get(run, slot.name) in free - {slot.name}:
                continue
            self.queue.remove(run)
            outcome = self.outcome_of(run)
            if outcome is None:
                return run
            self.watcher.finished(run, outcome)
        return None

    def _check_busy(self) -> None:
        now = time.monotonic()
        for run in [run for run, when in self.busy.items() if when <= now]:
            del self.busy[run]
            outcome = self.outcome_of(run)
            if outcome is not None:
                self.watcher.finished(run, outcome)
            else:
                self.queue.append(run)

    def _on_event(self, event: JobEvent) -> None:
        slot = self.submitted.pop(event.run)
        if event.outcome == "busy":
            # The delay doubles at each check, because a long training holds its lease for hours.
            # The exponent is bounded, because a float overflows.
            now = time.monotonic()
            delay = min(MAX_BUSY_SECONDS, BUSY_SECONDS * 2.0 ** min(10, self.checks[event.run]))
            self.checks[event.run] += 1
            self.checked_in[event.run] = slot.name
            self.busy[event.run] = min(now + delay, self._last_check(now))
            self.watcher.held(event.run)
            return
        self.last_event = time.monotonic()
        if event.outcome != "interrupted":
            self.watcher.finished(event.run, event.outcome, event.reason)
        elif not self.stopping:  # somebody has stopped the worker, and not the launcher
            self._retry(event.run, "the worker was asked to stop")

    def _last_check(self, now: float) -> float:
        """Time of the last check of busy runs before this launch ends; infinite if none is due.

        The check is as late as possible: only a holder that was silent for long enough counts as
        dead.
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
            self.broken.add(lost.run)
        self._retry(lost.run, lost.reason)

    def _retry(self, run: str, reason: str) -> None:
        """Queue a run again, which resumes from its checkpoint; after MAX_DEATHS it has failed.

        If signals from outside ended all of its workers, the next launch tries it again without
        --retry-failed.
        """
        self.deaths[run] += 1
        folder = self.folder_of(run)
        if self.deaths[run] < MAX_DEATHS:
            # In front, so that a begun run ends before another one begins.
            self.queue.appendleft(run)
            with suppress(OSError):
                add_line(folder.log, f"{reason}; started again")
            self.watcher.lost(run, reason)
            return
        with suppress(OSError):  # a full disk must not end the other runs
            record_failure(
                folder,
                reason,
                none_if_unreadable(folder.read_failure),
                killed=run not in self.broken,
            )
        self.watcher.finished(run, "failed", reason)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ask all jobs to save and leave at the first signal, and kill them at the second SIGINT,
        which comes from the keyboard.

        Clusters send several signals before they end a job; jobs still have to save then.
        """
        self.control.on_signal(number)
        self.interrupts += number == signal.SIGINT
        if not self.stopping:
            self._stop()
        elif number == signal.SIGINT and self.interrupts > 1:
            self.executor.cancel()

    def _stop(self) -> None:
        """Ask all jobs to save and leave, and start no other."""
        self.stopping = True
        self.executor.cancel()
