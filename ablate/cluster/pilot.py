"""A pilot: the launcher on a node of a cluster. It trains missing runs of a submitted study until
none is left for it.

Any number of pilots share a results root, because each run is held by a lease. A pilot saves and
exits when the cluster warns of the time limit, when `ablate cluster stop` asks it to, and when
several runs fail on its host one after another.
"""

from __future__ import annotations

import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from ablate.analysis.missing import ENDED, on_some_host, on_this_host
from ablate.analysis.stages import Stage, execute_stages, first_stage
from ablate.cluster.engine import START_SECONDS
from ablate.cluster.profiles import engine_of
from ablate.cluster.submission import open_job, steps_of
from ablate.errors import EXIT_INTERRUPTED, EXIT_RUN_FAILED, AblateError, Interrupted
from ablate.formatting import duration, plural
from ablate.launch.control import Control
from ablate.launch.executor import Slot, devices_text
from ablate.launch.launch import Share, launch, outcome_of_launch
from ablate.store import State
from ablate.store.jobs import (
    CANCELLED,
    NOTHING_LEFT,
    REPORT_SECONDS,
    REQUEUED,
    ClusterJob,
    Exit,
    JobFolder,
    PilotPhase,
    PilotReport,
)
from ablate.store.processes import process_mark

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus

STOP_SECONDS = 2.0  # between two checks for a request to stop
LIMIT_SECONDS = 60.0  # between two requests for the time limit, which an administrator may change
QUICK_SECONDS = 60.0  # a run that fails so soon after its start may have failed because of the host
MAX_QUICK_FAILURES = 2  # number of different runs that fail one after another before it exits


class _Start(NamedTuple):
    """The start of a run in a slot.

    time: time of the start, by time.monotonic().
    step: step of the training at that time.
    """

    time: float
    step: int


class Pilot(Control):
    """Receives the events of the scheduler on this node, as a `Watcher`, and decides when to stop
    starting runs, when to exit, and whether to requeue.
    """

    signals = (*Control.signals, signal.SIGUSR1)

    def __init__(self, folder: JobFolder, job: ClusterJob, log: Callable[[str], None]) -> None:
        self.folder = folder
        self.job = job
        self.log = log
        self.engine = engine_of(job)
        # Asked of the engine: in a Ray cluster that Slurm has started, Slurm's variables in the
        # environment describe the whole Ray cluster, not this pilot.
        self.allocation = self.engine.allocation()
        self.name = self.allocation.name
        self.results = folder.results
        self.labels: dict[str, str] = {}  # labels of the runs that may be started, by id
        self.idle_seconds = float(self.engine.idle)  # of `Control`
        self.begun: dict[str, _Start] = {}  # by id of each run in a slot
        self.signals_received: list[int] = []
        self.quick_failures: set[str] = set()  # ids of runs
        self.exit: Exit | None = None  # why the pilot must exit
        self.has_progress = False  # whether a run has ended or made steps here
        # The time limit of the allocation, by time.monotonic().
        self.deadline = float("inf")
        self.is_draining = False  # whether the time limit is too near to start a run
        # Times of the next check for a stop, of the next query of the limit, of the next report.
        self.next_stop = 0.0
        self.next_limit = 0.0
        self.next_report = 0.0
        self.report = PilotReport(
            **process_mark().model_dump(),
            name=self.name,
            phase="starting",
            time=time.time(),
            starts=1 + self.allocation.restarts,
        )
        self.write_report()

    # Questions of the scheduler

    def may_start(self) -> bool:
        """Whether the time limit leaves room for another run."""
        self._update_limit()
        # If somebody has removed the results, a run that starts now would create its folder again.
        return not self.is_draining and self.folder.job.exists()

    def _update_limit(self) -> None:
        """Note whether the time limit, asked for now and then, is too near to start a run."""
        now = time.monotonic()
        if now >= self.next_limit:
            self.next_limit = now + LIMIT_SECONDS
            seconds_left = self.allocation.seconds_left()
            if seconds_left is not None:  # otherwise the deadline of the last answer stays
                self.deadline = now + seconds_left
        was_draining = self.is_draining
        self.is_draining = self.deadline - now < self.allocation.grace + START_SECONDS
        if self.is_draining and not was_draining:
            self.log(
                f"{duration(self.deadline - now)} until the time limit: no further run is started"
            )

    def must_stop(self) -> bool:
        """Whether to save and exit, because somebody has asked for it or this host is at fault."""
        now = time.monotonic()
        if not self.exit and now >= self.next_stop:
            self.next_stop = now + STOP_SECONDS
            if not self.folder.job.exists():
                self.request_exit(Exit("failed", f"{self.folder.path} is gone"))
            elif reason := self.folder.stop_reason():
                self.request_exit(reason)
            elif len(self.quick_failures) >= MAX_QUICK_FAILURES:
                runs, host = len(self.quick_failures), socket.gethostname()
                self.request_exit(Exit("failed", f"{runs} runs in a row failed at once on {host}"))
        return self.exit is not None

    def request_exit(self, reason: Exit) -> None:
        """Record why the pilot must exit, unless there is an earlier reason, and log it."""
        self.exit = self.exit or reason
        self.log(f"{reason.text}: saving")
        self.write_report("saving")

    def on_signal(self, number: int) -> None:
        """Remember a signal of the cluster."""
        self.signals_received.append(number)

    # Events of the scheduler

    def announce(self, corpus: Corpus, slots: Sequence[Slot], missing: int) -> None:
        """Log the slots."""
        self.log(
            f"{plural(missing, 'run')} to do, {len(slots)} at once on {devices_text(slots[0])}"
        )
        self.write_report("working", slots=len(slots), device=slots[0].devices[0])

    def started(self, run: str) -> None:
        """Remember and log a run that was started."""
        self.begun[run] = _Start(time.monotonic(), steps_of(self.results.run(run)))
        self.log(f"starting {self.labels[run]}")
        self.write_report()

    def held(self, run: str) -> None:
        """Forget a run that another pilot holds."""
        self.begun.pop(run, None)
        self.log(f"held by another pilot: {self.labels[run]}")

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """Log a run that is done, has diverged or failed, or does not suit this host; count it."""
        if run not in self.begun:  # another pilot has finished it
            return
        start = self.begun.pop(run)
        is_quick = time.monotonic() - start.time < QUICK_SECONDS
        if outcome == "failed" and is_quick and steps_of(self.results.run(run)) <= start.step:
            self.quick_failures.add(run)
        elif outcome in ("done", "diverged", "failed"):
            self.quick_failures.clear()  # this host can train
            self.has_progress = True
        line = f"{outcome:8} {self.labels[run]}"
        if reason:
            line += f": {reason}"
        self.log(line)
        ended = self.report.ended
        if outcome in ("done", "diverged"):
            ended += 1
        self.write_report(ended=ended)

    def lost(self, run: str, reason: str) -> None:
        """Log a run whose worker has died, and which starts again."""
        self.log(f"lost     {self.labels[run]}: {reason}; started again")

    def tick(self) -> None:
        """Write a report if the next one is due."""
        if time.monotonic() >= self.next_report:
            self.write_report()

    def write_report(
        self, phase: PilotPhase | None = None, exit: Exit | None = None, **changes: int | str
    ) -> None:
        """Update the phase, the reason to exit or other fields of the report of this pilot, and
        write it.
        """
        self.next_report = time.monotonic() + REPORT_SECONDS
        update = {
            "phase": phase or self.report.phase,
            "time": time.time(),
            "running": tuple(self.labels[run] for run in self.begun),
            **changes,
        }
        if exit is not None:
            update |= {"left_for": exit.kind, "reason": exit.text}
        self.report = self.report.model_copy(update=update)
        if not self.folder.job.exists():  # somebody has removed the results: do not write again
            return
        with suppress(OSError):  # a full disk must not end a pilot over a report
            self.report.write(self.folder.pilot(self.name), durable=False)

    # The end

    def finish(self, states: Counter[State] | None) -> int:
        """Requeue this pilot if the cluster ends it and work is left, and write the last report.

        Args:
            states: number of runs in each state; None if a signal or a request has ended the work.

        Returns:
            The exit code: 0 if this pilot has done all that it can, also if runs have failed.
            With any other code, the system that started it, such as Kubernetes, may start it again.
        """
        for number in self.signals:
            signal.signal(number, signal.SIG_IGN)  # requeueing ends this allocation by a signal
        has_progress = self.has_progress
        for run, start in self.begun.items():
            has_progress = has_progress or steps_of(self.results.run(run)) > start.step
        self.begun.clear()
        reason = self.exit
        if states is not None:
            n_remaining = states.total() - sum(states[state] for state in ENDED)
            if not n_remaining:
                reason = NOTHING_LEFT
            elif not self.is_draining:
                reason = Exit("finished", f"{plural(n_remaining, 'run')} left to other pilots")
        code = 0
        if reason is None:
            reason = self._requeue(has_progress)
            code = EXIT_INTERRUPTED
        elif reason.kind == "failed":
            code = EXIT_RUN_FAILED
        self.write_report("left", reason)
        self.log(f"left: {reason.text}")
        return code

    def _requeue(self, has_progress: bool) -> Exit:
        """Requeue the allocation, unless somebody has cancelled it or its time is too short for a
        step. Return the reason to exit.
        """
        allocation = self.allocation
        if not allocation.has_queue:
            return Exit("stopped", "interrupted")
        state, restarts = allocation.state()
        if restarts > allocation.restarts:
            return Exit("requeued", "requeued by Slurm")
        warned = signal.SIGUSR1 in self.signals_received or self.is_draining
        if not warned and state not in ("RUNNING", ""):  # empty if the cluster does not answer
            return CANCELLED
        if not has_progress:
            seconds_left = allocation.seconds_left()
            is_over = seconds_left is not None and seconds_left < allocation.grace
            if self.is_draining or is_over:
                text = "not requeued: its time limit came before any step was made"
                return Exit("failed", text)
        refused = allocation.requeue()
        return Exit("failed", f"not requeued: {refused}") if refused else REQUEUED

    def release_waiting(self) -> None:
        """Cancel the pilots that still wait in the queue, so that the closing job can start."""
        submissions = self.folder.read_submissions()
        if submissions and self.folder.job.exists():
            self.folder.request_stop(NOTHING_LEFT)
            self.engine.cancel(submissions[-1], waiting_only=True)


def work(folder: JobFolder, index: int, log: Callable[[str], None]) -> int:
    """Work on a job until nothing is left for this pilot. Each pilot begins with another run, by
    its number in the job, counted from 0.

    Returns:
        The exit code of the pilot.

    Raises:
        AblateError: the study, its data or this host cannot be used; nothing is lost.
    """
    end = folder.read_end()
    if end is not None:  # as for a pilot that could not be cancelled in time
        log(f"the job is closed: {end.reason}")
        return 0
    job, study = open_job(folder)
    pilot = Pilot(folder, job, log)

    # Until the scheduler installs its handlers.
    def before_launch(number: int, frame: FrameType | None) -> None:
        pilot.on_signal(number)
        if len(pilot.signals_received) == 1:  # further signals must not interrupt `finish`
            raise Interrupted

    for number in pilot.signals:
        signal.signal(number, before_launch)

    def execute(stage: Stage) -> None:
        pilot.labels |= stage.runs.labels
        launch(
            stage,
            folder.results,
            pilot,
            job.resources,
            on_this_host,
            share=Share(index, pilot.engine.workers),
            control=pilot,
        )

    try:
        stage = first_stage(study, folder.results, log, on_some_host)
        stage = execute_stages(stage, folder.results, execute, log, on_some_host)
        if stage.sentence:
            log(stage.sentence)
    except Interrupted:
        return pilot.finish(None)
    except AblateError as error:
        pilot.write_report("left", Exit("failed", error.lines[0]))
        raise
    code = pilot.finish(outcome_of_launch(stage.selected, folder.results))
    if not pilot.exit and stage.is_over:
        pilot.release_waiting()
    return code


def is_last_pilot(folder: JobFolder) -> bool:
    """Whether this process, whose pilot has left, must close the job: no closing job follows, and
    no other pilot is at work.
    """
    if not folder.job.exists() or folder.is_closed or engine_of(folder.read_job()).submits_again:
        return False
    return not any(report.is_alive for report in folder.read_pilots())
