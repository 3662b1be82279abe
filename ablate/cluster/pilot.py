"""A pilot: the launcher on a node of a cluster. It trains missing runs of a submitted study until
none is left for it.

Any number of pilots share a results root, because each run is held by a lease. A pilot saves and
leaves when the cluster warns of the time limit, when `ablate cluster stop` asks it to, and when
several runs in a row fail on its host.
"""

from __future__ import annotations

import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

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
from ablate.plan.progress import run_labels
from ablate.store import State
from ablate.store.jobs import (
    CANCELLED,
    NOTHING_LEFT,
    REPORT_SECONDS,
    REQUEUED,
    ClusterJob,
    JobFolder,
    Leave,
    PilotPhase,
    PilotReport,
)
from ablate.store.processes import process_mark

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus

STOP_SECONDS = 2.0  # between two checks for a request to stop
LIMIT_SECONDS = 60.0  # between two requests for the time limit, which an administrator may change
QUICK_SECONDS = 60.0  # a run that fails so soon after its start may have failed because of the host
MAX_QUICK_FAILURES = 2  # number of different runs that fail in a row before the pilot leaves


class Pilot(Control):
    """Receives the events of the scheduler on this node, and decides when to stop starting runs,
    when to leave, and whether to requeue.
    """

    signals = (*Control.signals, signal.SIGUSR1)

    def __init__(self, folder: JobFolder, job: ClusterJob, log: Callable[[str], None]) -> None:
        self.folder, self.job, self.log = folder, job, log
        self.engine = engine_of(job)
        # Asked of the engine: in a Ray cluster that Slurm has started, Slurm's variables in the
        # environment describe the whole Ray cluster, not this pilot.
        self.allocation = self.engine.allocation()
        self.name = self.allocation.name
        self.results = folder.results
        self.labels: dict[str, str] = {}  # labels of the runs that may be started, by id
        self.idle_seconds = float(self.engine.idle)
        # By id of each run in a slot: time of the start, and the step of the training at that time.
        self.begun: dict[str, tuple[float, int]] = {}
        self.received: list[int] = []  # signals
        self.quick_failures: set[str] = set()  # ids of runs
        self.reason: Leave | None = None  # why the pilot is to leave
        self.has_progress = False  # whether a run has made steps here
        self.is_draining = False  # whether the time limit is too near to start a run
        # Times of the next check for a stop, of the next query of the limit, of the next report.
        self.next_stop = 0.0
        self.next_limit = 0.0
        self.next_report = 0.0
        self.deadline = float("inf")
        self.report = PilotReport(
            **process_mark().model_dump(),
            name=self.name,
            phase="starting",
            time=time.time(),
            starts=1 + self.allocation.restarts,
        )
        self.write()

    # Questions of the scheduler

    def may_start(self) -> bool:
        """Whether the time limit leaves room for another run."""
        now = time.monotonic()
        if now >= self.next_limit:
            self.next_limit = now + LIMIT_SECONDS
            left = self.allocation.seconds_left()
            if left is not None:  # otherwise the deadline of the last answer stays
                self.deadline = now + left
        drains = self.deadline - now < self.allocation.grace + START_SECONDS
        if drains and not self.is_draining:
            self.log(
                f"{duration(self.deadline - now)} until the time limit: no further run is started"
            )
        self.is_draining = drains
        # If somebody has removed the results, a run that starts now would create its folder again.
        return not drains and self.folder.job.exists()

    def must_stop(self) -> bool:
        """Whether to save and leave, because somebody has asked for it or this host is at fault."""
        now = time.monotonic()
        if not self.reason and now >= self.next_stop:
            self.next_stop = now + STOP_SECONDS
            if not self.folder.job.exists():
                self.leave_for(Leave("failed", f"{self.folder.path} is gone"))
            elif reason := self.folder.stop_reason():
                self.leave_for(reason)
            elif len(self.quick_failures) >= MAX_QUICK_FAILURES:
                runs, host = len(self.quick_failures), socket.gethostname()
                self.leave_for(Leave("failed", f"{runs} runs in a row failed at once on {host}"))
        return self.reason is not None

    def leave_for(self, reason: Leave) -> None:
        """Record why the pilot leaves, unless there is an earlier reason, and log it."""
        self.reason = self.reason or reason
        self.log(f"{reason.text}: saving")
        self.write("saving")

    def on_signal(self, number: int) -> None:
        """Remember a signal of the cluster."""
        self.received.append(number)

    # Events of the scheduler

    def announce(self, corpus: Corpus, slots: Sequence[Slot], missing: int) -> None:
        """Log the slots."""
        self.log(
            f"{plural(missing, 'run')} to do, {len(slots)} at once on {devices_text(slots[0])}"
        )
        self.write("working", slots=len(slots), device=slots[0].device)

    def started(self, run: str) -> None:
        """Remember and log a run that was started."""
        self.begun[run] = (time.monotonic(), steps_of(self.results.run(run)))
        self.log(f"started  {self.labels[run]}")
        self.write()

    def held(self, run: str) -> None:
        """Forget a run that another pilot holds."""
        self.begun.pop(run, None)
        self.log(f"held by another pilot: {self.labels[run]}")

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """Log a run that is done, has diverged or failed, or does not suit this host; count it."""
        if run not in self.begun:  # another pilot has finished it
            return
        start, first_step = self.begun.pop(run)
        is_quick = time.monotonic() - start < QUICK_SECONDS
        if outcome == "failed" and is_quick and steps_of(self.results.run(run)) <= first_step:
            self.quick_failures.add(run)
        elif outcome in ("done", "diverged", "failed"):
            self.quick_failures.clear()
            self.has_progress = True
        line = f"{outcome:8} {self.labels[run]}"
        if reason:
            line += f": {reason}"
        self.log(line)
        ended = self.report.ended
        if outcome in ("done", "diverged"):
            ended += 1
        self.write(ended=ended)

    def lost(self, run: str, reason: str) -> None:
        """Log a run whose worker has died, and which starts again."""
        self.log(f"lost     {self.labels[run]}: {reason}; started again")

    def tick(self) -> None:
        """Write a report if the next one is due."""
        if time.monotonic() >= self.next_report:
            self.write()

    def write(
        self, phase: PilotPhase | None = None, why: Leave | None = None, **changes: int | str
    ) -> None:
        """Update fields of the report of this pilot, and write it.

        Args:
            phase: the new phase; None to keep it.
            why: why the pilot leaves; None to keep the recorded reason.
            changes: other fields of the report.
        """
        self.next_report = time.monotonic() + REPORT_SECONDS
        update = {
            "phase": phase or self.report.phase,
            "time": time.time(),
            "running": tuple(self.labels[run] for run in self.begun),
            **changes,
        }
        if why is not None:
            update |= {"left_for": why.kind, "reason": why.text}
        self.report = self.report.model_copy(update=update)
        if not self.folder.job.exists():  # somebody has removed the results: do not write again
            return
        with suppress(OSError):  # a full disk must not end a pilot over a report
            self.report.write(self.folder.pilot(self.name), durable=False)

    # The end

    def leave(self, states: Counter[State] | None) -> int:
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
        for run, (_, step) in self.begun.items():
            has_progress = has_progress or steps_of(self.results.run(run)) > step
        self.begun.clear()
        left = 0
        if states is not None:
            left = states.total() - sum(states[state] for state in ENDED)
        reason = self.reason
        code = 0
        if states is not None and not left:
            reason = NOTHING_LEFT
        elif states is not None and not self.is_draining:
            reason = Leave("finished", f"{plural(left, 'run')} left to other pilots")
        elif reason is None:
            reason = self._requeue(has_progress)
            code = EXIT_INTERRUPTED
        elif reason.kind == "failed":
            code = EXIT_RUN_FAILED
        self.write("left", reason)
        self.log(f"left: {reason.text}")
        return code

    def _requeue(self, has_progress: bool) -> Leave:
        """Requeue the allocation, unless somebody has cancelled it or its time is too short for a
        step. Return the reason to leave.
        """
        allocation = self.allocation
        if not allocation.has_queue:
            return Leave("stopped", "interrupted")
        state, restarts = allocation.state()
        if restarts > allocation.restarts:
            return Leave("requeued", "requeued by Slurm")
        warned = signal.SIGUSR1 in self.received or self.is_draining
        if not warned and state not in ("RUNNING", ""):
            return CANCELLED
        if not has_progress:
            left = allocation.seconds_left()
            if self.is_draining or (left is not None and left < allocation.grace):
                text = "not requeued: its time limit came before any step was made"
                return Leave("failed", text)
        refused = allocation.requeue()
        return Leave("failed", f"not requeued: {refused}") if refused else REQUEUED

    def release_waiting(self) -> None:
        """Cancel the pilots that still wait in the queue, so that the closing job can start."""
        submissions = self.folder.read_submissions()
        if submissions and self.folder.job.exists():
            self.folder.request_stop(NOTHING_LEFT)
            self.engine.cancel(submissions[-1], waiting_only=True)


def work(folder: JobFolder, index: int, log: Callable[[str], None]) -> int:
    """Work on a job until nothing is left for this pilot.

    Args:
        folder: folder of the job.
        index: number of the pilot in its job, counted from 0. Each pilot begins with another run.
        log: receives lines for people.

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

    def before_launch(number: int, frame: FrameType | None) -> None:
        pilot.on_signal(number)
        if len(pilot.received) == 1:  # further signals must not interrupt the leaving
            raise Interrupted

    for number in pilot.signals:
        signal.signal(number, before_launch)

    def execute(stage: Stage) -> None:
        pilot.labels |= run_labels(stage.runs)
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
        return pilot.leave(None)
    except AblateError as error:
        pilot.write("left", Leave("failed", error.lines[0]))
        raise
    code = pilot.leave(outcome_of_launch(stage.selected, folder.results))
    if not pilot.reason and stage.is_over:
        pilot.release_waiting()
    return code


def is_last_pilot(folder: JobFolder) -> bool:
    """Whether this process, whose pilot has left, must close the job: no closing job follows, and
    no other pilot is at work.
    """
    if not folder.job.exists() or folder.is_closed or engine_of(folder.read_job()).submits_again:
        return False
    return not any(report.is_alive for report in folder.read_pilots())
