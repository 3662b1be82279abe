"""Jobs for runs without content, and a watcher that remembers."""

from pathlib import Path

import pytest

from ablate.launch.executor import Slot
from ablate.store import Results
from ablate.workers.assignment import Assignment, RunRequest


def slots(count: int) -> list[Slot]:
    """This many slots on the CPU."""
    return [Slot(f"{i}", ("cpu",), 1, 1e9) for i in range(count)]


def a_job(results: Results, run: str, slot: Slot, halve_micro_batch: bool = False) -> Assignment:
    """The job of a run whose folder is empty."""
    request = RunRequest(
        folder=results.run(run).path, corpus=Path("/none"), test="test", decodings={}, settings={}
    )
    return Assignment(
        run=request,
        devices=slot.devices,
        threads=slot.threads,
        micro_batch_tokens=1,
        halve_micro_batch=halve_micro_batch,
    )


class Recorder:
    """A watcher that remembers the events; `on_start` is called with each run that is submitted."""

    def __init__(self):
        self.runs_started, self.runs_held, self.outcomes, self.reasons, self.ticks = (
            [],
            [],
            [],
            {},
            0,
        )
        self.on_start = lambda run: None
        self.runs_lost = []

    def started(self, run):
        self.runs_started.append(run)
        self.on_start(run)

    def held(self, run):
        self.runs_held.append(run)

    def finished(self, run, outcome, reason=""):
        self.outcomes.append((run, outcome))
        self.reasons[run] = reason

    def lost(self, run, reason):
        self.runs_lost.append((run, reason))

    def tick(self):
        self.ticks += 1


@pytest.fixture
def recorder():
    return Recorder()
