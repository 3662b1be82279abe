"""A worker process: units on standard input, one JSON event a unit on standard output.

It is started by a launcher with `python -m ablate.run.worker PID_OF_LAUNCHER`, in a session of its own so that a
Ctrl-C reaches the launcher alone, and works on one run after another, so that torch is loaded once.
SIGTERM and SIGINT ask it to save and leave; so does the end of the process that started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import torch

from ablate.errors import EXIT_INTERRUPTED, Interrupted, StoreError
from ablate.run.job import Unit
from ablate.run.pipeline import carry_out
from ablate.store import RunFolder
from ablate.store.files import write_json
from ablate.store.lease import Lease, LeaseLost


class _Stop:
    """Whether to stop: a signal came, or the launcher is gone."""

    def __init__(self, launcher: int) -> None:
        self.signalled = False
        self.launcher = launcher  # told, not looked up: it may be gone before torch is loaded
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signalled = True

    def __call__(self) -> bool:
        return self.signalled or os.getppid() != self.launcher


def main(launcher: int) -> int:
    """Work until standard input ends, for the launcher with this process id."""
    stop = _Stop(launcher)
    torch.set_flush_denormal(True)  # exp of a very unlikely logit is a denormal, and those cost 100 times as much
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not be taken for an event
    leases: dict[str, Lease] = {}  # of runs that others have: each knows for how long its holder has been silent
    for line in sys.stdin:
        unit = Unit.parse(line)
        outcome, why = _one(unit, stop, leases)
        event = {"run": RunFolder(Path(unit.folder)).id, "outcome": outcome, "reason": why}
        try:
            events.write(json.dumps(event) + "\n")
        except BrokenPipeError:
            return EXIT_INTERRUPTED
        if stop():
            return EXIT_INTERRUPTED
        if outcome == "failed":
            return 0  # what made it fail may still be in this process: the next run gets a fresh one
    return 0


def _one(unit: Unit, stop: _Stop, leases: dict[str, Lease]) -> tuple[str, str]:
    """Carry out one unit: (`done`, `diverged`, `interrupted`, `failed`, or `busy` where another has it; why)."""
    folder = RunFolder(Path(unit.folder))
    lease = leases.setdefault(folder.id, Lease(folder.lease))
    try:
        if not lease.try_to_take():
            return "busy", ""
        del leases[folder.id]
        try:
            return _alone(unit, folder, lambda: stop() or lease.is_lost, lease)
        finally:
            lease.release()
    except Exception as error:  # the disk: it gives no lease, or no log
        return "failed", reason(error, folder)


def _alone(unit: Unit, folder: RunFolder, stop: Callable[[], bool], lease: Lease) -> tuple[str, str]:
    """Carry out a unit as the only one that works on it, and note why where it fails."""
    with folder.log.open("a", encoding="utf-8") as log:
        os.dup2(log.fileno(), 2)  # all that is said, by libraries too, belongs to the run

        def say(line: str) -> None:
            with suppress(OSError):
                print(_stamp(line), file=log, flush=True)

        try:
            return carry_out(unit, stop, say, lease.check), ""
        except Interrupted:
            return ("busy", "") if lease.is_lost else ("interrupted", "")
        except LeaseLost:
            say("another has taken this run over: what is not written stays unwritten")
            return "busy", ""
        except Exception as error:
            say(traceback.format_exc().rstrip())
            with suppress(OSError):  # the disk may be what has failed; the launcher is told in any case
                write_json(folder.failure, {"reason": reason(error, folder), "time": time.time()})
            return "failed", reason(error, folder)


def reason(error: Exception, folder: RunFolder) -> str:
    """One line for a failure."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or folder.path}: {error.strerror}; the run goes on from its last checkpoint"
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, StoreError) else f"{type(error).__name__}: {lines[0]}"


def _stamp(line: str) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
