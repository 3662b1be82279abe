"""The scheduler: gives runs to an executor, and starts a run again if its worker has died."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from ablate.errors import Interrupted
from ablate.launch.control import Control, Watcher
from ablate.launch.executor import Executor, Lost, Slot
from ablate.store import RunFolder, none_if_unreadable
from ablate.store.status import add_line, record_failure
from ablate.workers.assignment import Assignment, WorkerEvent

TICK_SECONDS = 0.5
# A run counts as failed when this number of workers have died, or were stopped, before it ended.
MAX_ATTEMPTS = 3
# Another launcher holds a run while it has the run's lease. Seconds between two checks of such a
# run: first and largest value. The time doubles with each check: if many launchers share a results
# root, most runs are held, and each check reads files.
HELD_SECONDS = 2.0
MAX_HELD_SECONDS = 60.0


@dataclass
class _RunState:
    """What the scheduler knows of a run.

    checks: number of times that another launcher was found to hold the run.
    checked_in: name of the slot of the last check; empty before the first. A run is checked by the
        same worker each time, because the worker measures for how long the holder of the lease is
        silent.
    attempts: number of workers that have died or were stopped during the run.
    has_crashed: whether one of them died without being killed from outside.
    ran_out_of_memory: whether the last worker was killed for lack of memory. The next worker then
        halves the micro-batch.
    """

    checks: int = 0
    checked_in: str = ""
    attempts: int = 0
    has_crashed: bool = False
    ran_out_of_memory: bool = False


class Scheduler:
    """Executes runs, one in each slot of an executor at a time."""

    def __init__(
        self,
        executor: Executor,
        assignment_for: Callable[[str, Slot, bool], Assignment],
        folder_of: Callable[[str], RunFolder],
        outcome_of: Callable[[str], str | None],
        watcher: Watcher,
        control: Control | None = None,
    ) -> None:
        """Prepare for scheduling. All functions take the id of a run.

        Args:
            executor: executes the assignments.
            assignment_for: makes an assignment from (run, slot, halve_micro_batch).
            folder_of: the folder of a run.
            outcome_of: the outcome of a run as its files tell it, whichever launcher has executed
                it; None if the run is missing.
            watcher: receives the events.
            control: decides when runs start and when the launch ends.
        """
        self.executor = executor
        self.assignment_for = assignment_for
        self.folder_of = folder_of
        self.outcome_of = outcome_of
        self.watcher = watcher
        self.control = control or Control()
        self.runs: dict[str, _RunState] = {}  # by id
        # The ids of the runs in each state, so that no step reads the states of all runs: runs that
        # wait for a slot; runs with the slots that execute them; runs that other launchers hold,
        # with the times at which they are submitted again.
        self.queue: deque[str] = deque()
        self.executing: dict[str, Slot] = {}
        self.held: dict[str, float] = {}
        self.last_event = time.monotonic()  # time when an assignment last ended here
        self.stopping = False
        self.interrupts = 0  # number of times that SIGINT was received

    def run(self, runs: Sequence[str]) -> None:
        """Execute runs in the given order.

        Raises:
            Interrupted: a signal came; the state of every run is saved.
        """
        self.runs = {run: _RunState() for run in runs}
        self.queue.extend(runs)
        handlers = {
            number: signal.signal(number, self._on_signal) for number in self.control.signals
        }
        self.last_event = time.monotonic()
        try:
            while self.executing or self._may_continue():
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
        """Whether to go on while no run is being executed, because further runs may start."""
        waits = self.queue or self.held
        if self.stopping or not waits or not self.control.may_start():
            return False
        return time.monotonic() - self.last_event < self.control.idle_seconds

    def _submit(self) -> None:
        """Submit runs to the free slots."""
        occupied = {slot.name for slot in self.executing.values()}
        free = [slot for slot in self.executor.slots() if slot.name not in occupied]
        if not free or self.stopping or not self.control.may_start():
            return
        self._requeue_held()
        free_names = {slot.name for slot in free}
        for slot in free:
            run = self._next_missing(slot, free_names)
            if run is not None:
                state = self.runs[run]
                assignment = self.assignment_for(run, slot, state.ran_out_of_memory)
                state.ran_out_of_memory = False
                self.executing[run] = slot
                self.executor.submit(assignment, slot)
                self.watcher.started(run)

    def _next_missing(self, slot: Slot, free_names: set[str]) -> str | None:
        """Take the next run from the queue that is still missing; None if there is none for this
        slot.

        Runs that another launcher has finished in the meantime are dropped from the queue. A run
        that was last checked in another free slot is left to that slot; see `checked_in`.
        """
        for run in list(self.queue):
            if self.stopping:  # a signal has come since the loop began
                return None
            checked_in = self.runs[run].checked_in
            if checked_in != slot.name and checked_in in free_names:
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
        due = [run for run, next_check in self.held.items() if next_check <= now]
        for run in sorted(due, key=self.held.__getitem__):
            del self.held[run]
            outcome = self.outcome_of(run)
            if outcome is not None:
                self.watcher.finished(run, outcome)
            else:
                self.queue.append(run)

    def _on_event(self, event: WorkerEvent) -> None:
        """Process the end of an assignment."""
        if event.outcome == "held":
            self._on_held(event.run)
            return
        del self.executing[event.run]
        self.last_event = time.monotonic()
        if event.outcome != "interrupted":
            self.watcher.finished(event.run, event.outcome, event.reason)
        elif not self.stopping:  # somebody has stopped only this worker
            self._retry(event.run, "the worker was asked to stop")

    def _on_held(self, run: str) -> None:
        """Plan the next check of a run that another launcher holds."""
        state = self.runs[run]
        state.checked_in = self.executing.pop(run).name
        now = time.monotonic()
        # A check costs an assignment and several file operations, and a long training holds its
        # lease for hours. The exponent is bounded only to keep the number small.
        delay = min(MAX_HELD_SECONDS, HELD_SECONDS * 2 ** min(state.checks, 10))
        state.checks += 1
        next_check = now + delay
        # The last check comes shortly before this launch stops waiting for held runs: the later it
        # comes, the more surely it notices that the holder of a run has died.
        last_check = self.last_event + self.control.idle_seconds - 3 * TICK_SECONDS
        if now < last_check and not self.executing:
            next_check = min(next_check, last_check)
        self.held[run] = next_check
        self.watcher.held(run)

    def _on_lost(self, lost: Lost) -> None:
        """Process the death of a worker."""
        state = self.runs[lost.run]
        del self.executing[lost.run]
        self.last_event = time.monotonic()
        if self.stopping:
            return
        state.ran_out_of_memory = lost.out_of_memory
        state.has_crashed = state.has_crashed or not lost.from_outside
        self._retry(lost.run, lost.reason)

    def _retry(self, run: str, reason: str) -> None:
        """Queue a run again, so that it resumes from its checkpoint; after `MAX_ATTEMPTS` attempts,
        record that it has failed.

        If all its workers were killed from outside, the next launch tries the run again without
        --retry-failed.
        """
        state = self.runs[run]
        state.attempts += 1
        folder = self.folder_of(run)
        if state.attempts < MAX_ATTEMPTS:
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
                killed=not state.has_crashed,
            )
        self.watcher.finished(run, "failed", reason)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Ask all workers to save and exit at the first signal; kill them at a second SIGINT, which
        comes from the keyboard.

        Other repeated signals have no effect: a cluster sends several signals before it ends a job,
        and workers must be able to save in spite of them.
        """
        self.control.on_signal(number)
        if number == signal.SIGINT:
            self.interrupts += 1
        if not self.stopping:
            self._stop()
        elif number == signal.SIGINT and self.interrupts > 1:
            self.executor.cancel()  # the second call kills

    def _stop(self) -> None:
        """Ask all workers to save and exit, and start no further runs."""
        self.stopping = True
        self.executor.cancel()
