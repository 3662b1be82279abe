"""A worker process: units on standard input, one JSON event a unit on standard output.

It is started by a launcher with `python -m ablate.runner.worker PID_OF_LAUNCHER`, in a session of its own so that a
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
from contextlib import suppress
from pathlib import Path
from types import FrameType

import torch
from filelock import FileLock, Timeout

from ablate.errors import EXIT_INTERRUPTED, Interrupted, StoreError
from ablate.runner.carry_out import carry_out
from ablate.runner.unit import Unit
from ablate.store import RunFolder
from ablate.store.files import write_json


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
    for line in sys.stdin:
        unit = Unit.parse(line)
        outcome = _one(unit, stop)
        try:
            events.write(json.dumps({"run": RunFolder(Path(unit.folder)).id, "outcome": outcome}) + "\n")
        except BrokenPipeError:
            return EXIT_INTERRUPTED
        if stop():
            return EXIT_INTERRUPTED
        if outcome == "failed":
            return 0  # what made it fail may still be in this process: the next run gets a fresh one
    return 0


def _one(unit: Unit, stop: _Stop) -> str:
    """Carry out one unit: `done`, `diverged`, `interrupted`, `failed`, or `busy` where another process has it."""
    folder = RunFolder(Path(unit.folder))
    try:
        with FileLock(folder.lock, timeout=0), folder.log.open("a") as log:
            os.dup2(log.fileno(), 2)  # all that is said, by libraries too, belongs to the run
            try:
                return carry_out(unit, stop, lambda line: print(_stamp(line), file=log, flush=True))
            except Interrupted:
                return "interrupted"
            except Exception as error:
                print(_stamp(traceback.format_exc()), file=log, flush=True)
                with suppress(OSError):  # the disk may be what has failed; the launcher is told in any case
                    write_json(folder.failure, {"reason": reason(error), "time": time.time()})
                return "failed"
    except Timeout:
        return "busy"


def reason(error: Exception) -> str:
    """One line for a failure."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, StoreError) else f"{type(error).__name__}: {lines[0]}"


def _stamp(line: str) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
