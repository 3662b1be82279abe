"""Saving a run: whole generations, which wait in memory where the disk refuses them for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.errors import StoreError
from ablate.store import checkpoints
from ablate.training.metrics import MetricsLog

MOST_WAITING = 2  # in memory; with one more refused, the run fails
RETRY_SECONDS = 30.0


@dataclass(frozen=True)
class Snapshot:
    """A generation as it will be written. `info` says where training is; see `Position`."""

    step: int
    weights: bytes
    state: bytes
    info: Mapping[str, Any]
    scheduled: bool


class Saver:
    """Writes the generations of one run, and removes those that nothing will ask for.

    A generation that was due is part of the result, since averaging takes it: if the disk refuses it, it is kept
    and tried again, and the run may not end without it. One that only shortens a resume is let go.
    """

    def __init__(
        self,
        folder: Path,
        metrics: MetricsLog,
        *,
        keep: int,
        patience: bool,
        guard: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        """Set up saving.

        Args:
            folder: of checkpoints.
            metrics: the log that must be on the disk before a checkpoint that speaks of it.
            keep: how many checkpoints will be averaged.
            patience: whether an earlier step than the last may be chosen.
            guard: called before each write; raises where the run is no longer ours.
            say: takes a line for the log.
        """
        self.folder, self.metrics, self.keep, self.patience = folder, metrics, keep, patience
        self.guard, self.say = guard, say
        self.waiting: list[Snapshot] = []
        self.last = time.monotonic()

    def is_due(self, minutes: float) -> bool:
        """Whether it is time to save without a step's being due."""
        since = time.monotonic() - self.last
        return since > 60 * minutes or bool(self.waiting and since > RETRY_SECONDS)

    def save(self, snapshot: Snapshot) -> None:
        """Write a generation, and those that wait before it.

        Raises:
            OSError: the disk refused, and too many wait already.
        """
        self.last = time.monotonic()
        if snapshot.scheduled:
            self.waiting.append(snapshot)
        try:
            self.finish()
            if not snapshot.scheduled:
                self._write(snapshot)
        except OSError as error:
            if len(self.waiting) > MOST_WAITING:
                raise
            self.say(
                f"step {snapshot.step} could not be saved ({error.filename or self.folder}: {error.strerror}); "
                "the checkpoint before it is as it was, and training goes on"
            )

    def finish(self) -> None:
        """Write what waits.

        Raises:
            OSError: the disk refused.
        """
        while self.waiting:
            self._write(self.waiting[0])
            del self.waiting[0]

    def _write(self, snapshot: Snapshot) -> None:
        s = snapshot
        self.metrics.flush()
        checkpoints.save(self.folder, s.step, s.weights, s.state, s.info, s.scheduled, self.guard)
        self.guard()
        try:
            checkpoints.prune(self.folder, self._kept(s))
        except (OSError, StoreError) as error:
            self.say(f"old checkpoints could not be removed ({error}); the next save tries again")

    def _kept(self, newest: Snapshot) -> set[int]:
        """Steps whose weights averaging may still ask for: the window's, and what patience may go back to."""
        chosen = newest.info["best_step"] if self.patience else newest.step
        window = [g.step for g in checkpoints.scheduled(self.folder, until=chosen)][-self.keep :]
        # A later evaluation may turn out best, and its window begins here.
        later = [g.step for g in checkpoints.scheduled(self.folder) if g.step > chosen][-self.keep :]
        return {*window, *later}
