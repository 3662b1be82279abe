"""Checkpoints of a training: schedule, saving, retention and averaging (section 6.1)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from ablate.config import TrainingConfig
from ablate.errors import StoreError
from ablate.store import RunFolder, checkpoints
from ablate.store.records import TrainingState
from ablate.training.context import RunContext
from ablate.training.metrics_log import MetricsLog

# Checkpoints held in memory while the disk refuses them; one more, and the run fails
MAX_WAITING = 2
RETRY_SECONDS = 30.0


def checkpoint_intervals(config: TrainingConfig) -> tuple[int, ...]:
    """Steps between checkpoints: `checkpoint_every`, and with patience also `eval_every`."""
    of_evaluations = () if config.patience is None else (config.eval_every,)
    return (config.checkpoint_every, *of_evaluations)


def is_due(config: TrainingConfig, step: int) -> bool:
    """Whether a checkpoint is due after a step. One is also saved after the last step."""
    return any(step % every == 0 for every in checkpoint_intervals(config))


def averaged_steps(config: TrainingConfig, step: int, count: int) -> list[int]:
    """Steps of the last `count` checkpoints that were due up to `step`, the last of them."""
    due = {step}
    for every in checkpoint_intervals(config):
        # Only the last `count` of each interval can be among the last `count` of all.
        due.update(range(step - step % every, max(0, step - count * every), -every))
    return sorted(due)[-count:]


def count_due(config: TrainingConfig, step: int) -> int:
    """Number of checkpoints that were due up to `step`, which is the last of them."""
    return len(averaged_steps(config, step, count=step))


def average(files: Sequence[Path]) -> dict[str, Tensor]:
    """The element-wise mean of the weights in these files, summed in double precision.

    The paper averages the last 5 checkpoints of its base models, and the last 20 of its big ones.
    """
    # The weights as they are: a mean of one would only copy them.
    if len(files) == 1:
        return load_file(files[0])
    total: dict[str, Tensor] = {}
    for file in files:
        for name, value in load_file(file).items():
            # One file at a time, so that memory does not grow with the number of checkpoints.
            total[name] = value.double() + total.get(name, 0)
    return {name: (value / len(files)).to(torch.float32) for name, value in total.items()}


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint in memory, as it will be written; `Trainer._save` makes it."""

    weights: bytes
    state: bytes
    info: TrainingState
    scheduled: bool


class CheckpointSaver:
    """Writes the checkpoints of one run, and removes those that are no longer needed.

    A scheduled checkpoint is part of the result, because averaging uses it. If the disk refuses it,
    it is kept in memory and tried again, and the run cannot end without it. Any other checkpoint
    only shortens a resume, and is dropped.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: TrainingConfig,
        metrics: MetricsLog,
        keep: int,
        context: RunContext,
    ) -> None:
        """Prepare for saving.

        Args:
            folder: of the run.
            config: of the training.
            metrics: flushed before each checkpoint, so that the log is never behind.
            keep: number of checkpoints that averaging uses.
            context: hooks.
        """
        self.folder = folder.checkpoints
        self.config = config
        self.metrics = metrics
        self.keep = keep
        self.context = context
        self.waiting: list[Snapshot] = []
        self.last_save = time.monotonic()

    @property
    def is_due_by_clock(self) -> bool:
        """Whether `checkpoint_minutes` have passed, or it is time to try a refused checkpoint."""
        # A clock that never goes back, because the time of day may be set while a run trains.
        seconds = time.monotonic() - self.last_save
        limit = 60 * self.config.checkpoint_minutes
        return seconds > (min(limit, RETRY_SECONDS) if self.waiting else limit)

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint, after those that wait.

        Raises:
            OSError: the disk refused, and too many checkpoints wait already.
        """
        self.last_save = time.monotonic()
        # No scheduled one may be missing from the average, so they wait; another is tried once.
        if snapshot.scheduled:
            self.waiting.append(snapshot)
        try:
            self.flush()
            if not snapshot.scheduled:
                self._write(snapshot)
        except OSError as error:
            # Each is a whole copy of weights and optimizer state: memory bounds how many may wait.
            if len(self.waiting) > MAX_WAITING:
                raise
            self.context.log.warning(
                "step %d could not be saved (%s: %s); the checkpoint before it is unchanged, and "
                "training goes on",
                snapshot.info.step,
                error.filename or self.folder,
                error.strerror,
            )

    def flush(self) -> None:
        """Write the checkpoints that wait.

        Raises:
            OSError: the disk refused.
        """
        while self.waiting:
            self._write(self.waiting[0])
            del self.waiting[0]

    def _write(self, snapshot: Snapshot) -> None:
        # First, because the checkpoint states size and hash of the log, which must not be behind.
        self.metrics.flush()
        checkpoints.save(
            self.folder,
            snapshot.weights,
            snapshot.state,
            snapshot.info,
            snapshot.scheduled,
            self.context.check_lease,
        )
        self.context.check_lease()
        try:
            # Only now: until the new checkpoint is whole, the old ones are all that a resume has.
            checkpoints.prune(self.folder, self._kept_steps(snapshot.info))
        except (OSError, StoreError) as error:
            self.context.log.warning(
                "old checkpoints could not be removed (%s); the next save tries again", error
            )

    def _kept_steps(self, newest: TrainingState) -> set[int]:
        """Steps whose weights averaging may still use."""
        chosen = newest.step if self.config.patience is None else newest.best_step
        steps = [checkpoint.step for checkpoint in checkpoints.scheduled(self.folder)]
        up_to_chosen = [step for step in steps if step <= chosen]
        # With patience, a later evaluation may become the best one.
        later = [step for step in steps if step > chosen]
        return {*up_to_chosen[-self.keep :], *later[-self.keep :]}
