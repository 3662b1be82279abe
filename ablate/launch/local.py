"""The executor for this machine: a worker process in each slot."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from ablate.errors import MachineError
from ablate.interpreter import python_command
from ablate.launch.devices import local_slots, worker_environment
from ablate.launch.executor import Demand, Lost, Slot
from ablate.store.machine import count_oom_kills
from ablate.workers.assignment import READY, Assignment, WorkerEvent

WORKER = python_command("ablate.workers.worker")
# Time in which a worker without an assignment must exit by itself. Unloading libraries and the
# context of a GPU takes a while.
EXIT_SECONDS = 30.0
# Exit codes of a process that a signal from outside has ended.
_FROM_OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}


class _Worker:
    """A worker process, and the assignment that it executes."""

    def __init__(self, slot: Slot, command: Sequence[str]) -> None:
        self.slot = slot
        self.assignment: Assignment | None = None
        self.ready = False  # whether the worker has loaded its libraries
        self.rest = b""  # the incomplete line at the end of its output
        # Number of kills for lack of memory before the assignment.
        self.oom_kills: int | None = None
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=worker_environment(slot.threads, slot.devices),
            # Ctrl-C then reaches only the launcher, which asks its workers to stop.
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input = self.process.stdin
        self.output = self.process.stdout

    def submit(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.oom_kills = count_oom_kills()
        with suppress(BrokenPipeError):  # the worker has died, which `read_lines` will notice
            self.input.write(assignment.to_line().encode())
            self.input.flush()

    def read_lines(self) -> list[str] | None:
        """Read the complete lines that have arrived; None at the end of the output, where an
        incomplete line of a killed worker is dropped.

        Not by `readline`: it would read further lines into its buffer, where a selector does not
        see them.
        """
        chunk = os.read(self.output.fileno(), 1 << 16)
        if not chunk:
            return None
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        return [f"{line.decode(errors='replace')}\n" for line in lines]

    def close(self) -> None:
        for stream in (self.input, self.output):
            with suppress(BrokenPipeError):
                stream.close()
        try:
            self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:  # nothing is lost: its runs are saved
            self.process.kill()
            self.process.wait()


class LocalExecutor:
    """Executes the assignments of a slot, one after another, in one worker process."""

    def __init__(self, slots: Sequence[Slot], command: Sequence[str] = WORKER) -> None:
        """Prepare; `command` starts a worker with the protocol of `ablate.workers.worker`."""
        self._slots = tuple(slots)
        self._command = command
        self._workers: dict[str, _Worker] = {}  # by name of the slot
        self._selector = selectors.DefaultSelector()
        self._cancellations = 0  # number of calls of `cancel`
        self._can_start = False  # whether any worker has been ready

    def slots(self) -> Sequence[Slot]:
        """One slot for each worker."""
        return self._slots

    def submit(self, assignment: Assignment, slot: Slot) -> None:
        """Give an assignment to the worker of a slot."""
        worker = self._workers.get(slot.name)
        if worker is None:
            worker = self._workers[slot.name] = _Worker(slot, self._command)
            self._selector.register(worker.output, selectors.EVENT_READ, slot.name)
        assert worker.assignment is None, f"slot {slot.name} is occupied"
        worker.submit(assignment)
        if self._cancellations:  # `cancel` was called by a signal while the worker was starting
            self._signal(worker)

    def events(self, timeout: float) -> list[WorkerEvent | Lost]:
        """Read the events of all workers; see `Executor.events`."""
        events = []
        for key, _ in self._selector.select(timeout):
            event = self._read(self._workers[key.data])
            if event is not None:
                events.append(event)
        return events

    def _read(self, worker: _Worker) -> WorkerEvent | Lost | None:
        """Read the event of a worker's assignment, or notice the worker's death."""
        lines = worker.read_lines()
        if lines is None:
            return self._lost(worker)
        if not worker.ready and READY in lines:
            worker.ready = True
            self._can_start = True
            # Including the lines before, which start-up scripts of the machine may have printed.
            del lines[: lines.index(READY) + 1]
        if not worker.ready or not lines:
            return None
        (line,) = lines  # a worker has one assignment at a time
        event = WorkerEvent.from_line(line)
        worker.assignment = None
        if event.outcome in ("failed", "interrupted"):
            # The worker exits after such an event, and can take no other assignment.
            self._retire(worker)
        return event

    def _lost(self, worker: _Worker) -> Lost | None:
        self._retire(worker)
        if worker.assignment is None:
            return None
        code = worker.process.returncode
        # If no worker has ever been ready, the next worker would fail in the same way.
        if code >= 0 and not (self._can_start or self._cancellations):
            raise MachineError(f"a worker could not start (exit code {code}); its output is above")
        return Lost(
            run=worker.assignment.run.id,
            reason=_cause(code),
            # A crash ends with another signal, such as SIGSEGV, or with an exit code.
            from_outside=code in _FROM_OUTSIDE,
            out_of_memory=code == -signal.SIGKILL and worker.oom_kills != count_oom_kills(),
        )

    def _retire(self, worker: _Worker) -> None:
        self._selector.unregister(worker.output)
        worker.close()
        del self._workers[worker.slot.name]

    def cancel(self) -> None:
        """Send SIGTERM to all workers; a second call sends SIGKILL. Safe in a signal handler."""
        self._cancellations += 1
        for worker in self._workers.values():
            self._signal(worker)

    def _signal(self, worker: _Worker) -> None:
        if self._cancellations == 1:
            worker.process.terminate()
        else:
            worker.process.kill()

    def close(self) -> None:
        """Let idle workers exit, and kill workers that have an assignment."""
        for worker in self._workers.values():
            if worker.assignment is not None:
                worker.process.kill()
            worker.close()
        self._workers.clear()
        self._selector.close()


def local_executor(demand: Demand) -> LocalExecutor:
    """Make an executor with a worker in each slot of this machine; see `local_slots` for the
    errors.
    """
    return LocalExecutor(local_slots(demand))


def _cause(code: int) -> str:
    if code >= 0:
        return f"the worker ended with exit code {code}; see log.txt"
    if -code == signal.SIGKILL:
        return "the worker was ended by SIGKILL: the system may have run out of memory"
    if -code in set(signal.Signals):
        return f"the worker was ended by {signal.Signals(-code).name}"
    return f"the worker was ended by signal {-code}"
