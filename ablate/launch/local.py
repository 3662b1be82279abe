"""A pool of worker processes that carry out units until none is left."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Protocol

from ablate.errors import Interrupted, StoreError
from ablate.launch.devices import Place, worker_environment
from ablate.launch.memory import memory_killings
from ablate.run.job import Unit
from ablate.store import RunFolder
from ablate.store.files import write_json

TICK_SECONDS = 0.5
DEATHS = 3  # of workers at one run, before it has failed as far as this launch goes
FROM_OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
BUSY_SECONDS = 2.0  # between two looks at a run that another launcher has


class Watcher(Protocol):
    """Is told what happens."""

    def started(self, run: str) -> None:
        """A worker was given this run."""

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """A run is done, diverged or failed; `reason`: why, where only its worker could say."""

    def tick(self) -> None:
        """Some time has passed; called about twice a second."""


class _Worker:
    """A worker process, and the unit it has."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.run: RunFolder | None = None
        self.killings: int | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ablate.run.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=worker_environment(place.threads),
            start_new_session=True,  # a Ctrl-C is for the launcher, which then asks its workers
        )

    def give(self, unit: Unit) -> None:
        assert self.process.stdin is not None
        self.run = RunFolder(Path(unit.folder))
        self.killings = memory_killings()
        try:
            self.process.stdin.write(unit.line())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has died: its standard output ends, which is where that is noticed

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                stream.close()
        self.process.wait()


class Pool:
    """Carries out units, as many at once as there are places."""

    def __init__(
        self,
        places: Sequence[Place],
        unit_for: Callable[[str, Place], Unit],
        folder_of: Callable[[str], RunFolder],
        outcome_of: Callable[[str], str | None],
        watcher: Watcher,
    ) -> None:
        """Set up a pool.

        Args:
            places: one for each worker.
            unit_for: makes the unit of a run at a place.
            folder_of: the folder of a run.
            outcome_of: what a run has come to by now, by whoever's work; None while it is missing.
            watcher: is told what happens.
        """
        self.places, self.unit_for, self.folder_of = places, unit_for, folder_of
        self.outcome_of, self.watcher = outcome_of, watcher
        self.workers: dict[int, _Worker] = {}  # by place
        self.queue: deque[str] = deque()
        self.busy: dict[str, float] = {}  # runs that others have, and when to look again
        self.deaths: Counter[str] = Counter()
        self.broken: set[str] = set()  # runs of which a worker has died by itself
        self.starved: set[str] = set()  # runs whose last worker the system has ended for want of memory
        self.stopping = 0
        self.proven = False  # a worker has answered once: so they can start here
        self.selector = selectors.DefaultSelector()

    def carry_out(self, runs: Sequence[str]) -> None:
        """Carry out these runs, in this order.

        Raises:
            Interrupted: a signal came; every run that was under way is saved.
        """
        self.queue.extend(runs)
        handlers = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while self._work_left():
                self._assign()
                for key, _ in self.selector.select(TICK_SECONDS):
                    self._hear(key.data)
                self.watcher.tick()
        finally:
            self._end()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self.stopping:
            raise Interrupted

    def _work_left(self) -> bool:
        at_work = any(worker.run for worker in self.workers.values())
        return at_work or (not self.stopping and bool(self.queue or self.busy))

    def _assign(self) -> None:
        """Give every idle place a run, starting its worker where it has none."""
        self._look_at_busy()
        for index, place in enumerate(self.places):
            if self.stopping or not self.queue:
                return
            worker = self.workers.get(index)
            if worker is None:
                worker = self.workers[index] = _Worker(place)
                self.selector.register(worker.process.stdout, selectors.EVENT_READ, index)  # type: ignore[arg-type]
            if worker.run is None and not self.stopping:  # a signal may have come while its worker was starting
                self._give(worker, self.queue.popleft())

    def _give(self, worker: _Worker, run: str) -> None:
        outcome = self.outcome_of(run)
        if outcome is not None and outcome != "failed":  # another launcher has been here meanwhile
            self.watcher.finished(run, outcome)
            return
        worker.give(replace(self.unit_for(run, worker.place), smaller=run in self.starved))
        self.starved.discard(run)
        self.watcher.started(run)

    def _look_at_busy(self) -> None:
        now = time.monotonic()
        for run in [run for run, when in self.busy.items() if when <= now]:
            del self.busy[run]
            outcome = self.outcome_of(run)
            if outcome is not None:
                self.watcher.finished(run, outcome)
            else:
                self.queue.append(run)

    def _hear(self, index: int) -> None:
        """An event from a worker, or its end."""
        worker = self.workers[index]
        assert worker.process.stdout is not None
        line = worker.process.stdout.readline()
        if not line.endswith("\n"):  # the end, or half a line of a worker that was killed
            self._died(index, worker)
            return
        event = json.loads(line)
        worker.run, self.proven = None, True
        run, outcome = event["run"], event["outcome"]
        if outcome == "busy":
            self.busy[run] = time.monotonic() + BUSY_SECONDS
        elif outcome != "interrupted":
            self.watcher.finished(run, outcome, event.get("reason", ""))
        elif not self.stopping:  # someone has asked the worker alone to leave
            self._again(run, "the worker was asked to leave")
        if outcome in ("failed", "interrupted"):
            self._retire(index, worker)  # it leaves by itself, and must not be given another run on its way out

    def _died(self, index: int, worker: _Worker) -> None:
        """A worker is gone: as it was asked to, or with the run that it had."""
        self._retire(index, worker)
        if worker.run is None or self.stopping:
            return
        code = worker.process.returncode
        if code >= 0 and not self.proven:
            raise StoreError(f"a worker could not start (exit code {code}); what it said stands above")
        if code == -signal.SIGKILL and worker.killings != memory_killings():
            self.starved.add(worker.run.id)
        if code not in FROM_OUTSIDE:
            self.broken.add(worker.run.id)
        self._again(worker.run.id, _cause(code))

    def _retire(self, index: int, worker: _Worker) -> None:
        self.selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        worker.close()
        del self.workers[index]

    def _again(self, run: str, cause: str) -> None:
        """A run's worker has gone: its last checkpoint is as good as ever, a few times over.

        Where each was ended from outside, the next launcher tries again unasked.
        """
        self.deaths[run] += 1
        if self.deaths[run] < DEATHS:
            self.queue.appendleft(run)
            return
        failure = {"reason": cause, "killed": run not in self.broken, "time": time.time()}
        with suppress(OSError):  # on a full disk the others go on all the same
            write_json(self.folder_of(run).failure, failure)
        self.watcher.finished(run, "failed", cause)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks the workers to save and leave, the second ends them."""
        self.stopping += 1
        for worker in self.workers.values():
            if self.stopping == 1:
                worker.process.terminate()
            else:
                worker.process.kill()

    def _end(self) -> None:
        """Close what is idle, kill what an exception here has left at work."""
        for worker in self.workers.values():
            if worker.run is not None:
                worker.process.kill()
            worker.close()
        self.workers.clear()
        self.selector.close()


def _cause(code: int) -> str:
    if code >= 0:
        return f"the worker ended with exit code {code}; see log.txt"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ": the system may have run out of memory" if -code == signal.SIGKILL else ""
    return f"the worker was ended by {name}{hint}"
