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
from ablate.training.hooks import RunHooks
from ablate.training.metrics_log import MetricsLog
from ablate.training.progress import TrainingProgress

# Number of checkpoints that wait in memory while the disk refuses them. With one more, the run
# fails.
MAX_WAITING = 2
RETRY_SECONDS = 30.0  # seconds between attempts to write them


def checkpoint_intervals(config: TrainingConfig) -> tuple[int, ...]:
    """Steps between checkpoints: `checkpoint_every`, and with patience also `eval_every`."""
    if config.patience is None:
        return (config.checkpoint_every,)
    return (config.checkpoint_every, config.eval_every)


def is_due(config: TrainingConfig, step: int) -> bool:
    """Whether a checkpoint is due after a step. The last step has a checkpoint in any case."""
    return any(step % every == 0 for every in checkpoint_intervals(config))


def averaged_steps(config: TrainingConfig, step: int, count: int) -> list[int]:
    """Steps of the last `count` scheduled checkpoints up to and including `step`."""
    due = {step}
    for every in checkpoint_intervals(config):
        # The last `count` of all are among the last `count` of each interval.
        due.update(range(step - step % every, max(0, step - count * every), -every))
    return sorted(due)[-count:]


def count_due(config: TrainingConfig, step: int) -> int:
    """Number of scheduled checkpoints up to and including `step`."""
    return len(averaged_steps(config, step, count=step))


def average(files: Sequence[Path]) -> dict[str, Tensor]:
    """The element-wise mean of the weights in these files, summed in double precision.

    The paper averages the last 5 checkpoints of its base models, and the last 20 of its big models.
    """
    if len(files) == 1:  # nothing to average
        return load_file(files[0])
    total: dict[str, Tensor] = {}
    for file in files:
        for name, value in load_file(file).items():
            # Added file by file, so that memory does not grow with the number of checkpoints.
            total[name] = value.double() + total.get(name, 0)
    return {name: (value / len(files)).to(torch.float32) for name, value in total.items()}


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint in memory, ready to be written; `Trainer._save` makes it.

    weights: content of the file of weights.
    state: content of the file of the optimizer and random state.
    info: state of the training.
    scheduled: whether averaging may use the checkpoint; see `CheckpointManifest`.
    """

    weights: bytes
    state: bytes
    info: TrainingState
    scheduled: bool


class CheckpointSaver:
    """Writes the checkpoints of one run, and removes old ones that averaging no longer needs.

    A scheduled checkpoint is part of the result, because averaging uses it. If the disk refuses it,
    it waits in memory for the next attempt, and the run cannot end before it is written. Any other
    checkpoint only saves repeated steps after a resume: if the disk refuses it, it is dropped.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: TrainingConfig,
        metrics: MetricsLog,
        keep: int,
        hooks: RunHooks,
    ) -> None:
        """Prepare for saving.

        Args:
            folder: folder of the run.
            config: training settings of the row.
            metrics: metrics log, which is flushed before each checkpoint, so that it never ends
                before a checkpoint's step.
            keep: number of checkpoints that averaging uses.
            hooks: functions that the saver calls.
        """
        self.folder = folder.checkpoints
        self.config = config
        self.metrics = metrics
        self.keep = keep
        self.hooks = hooks
        self.waiting: list[Snapshot] = []
        self.last_save = time.monotonic()

    @property
    def is_due_by_clock(self) -> bool:
        """Whether `checkpoint_minutes` have passed, or it is time to retry a refused checkpoint."""
        limit = 60 * self.config.checkpoint_minutes
        if self.waiting:
            limit = min(limit, RETRY_SECONDS)
        # A monotonic clock, because the time of day may be set while a run trains.
        return time.monotonic() - self.last_save > limit

    def save(self, snapshot: Snapshot) -> None:
        """Write the waiting checkpoints, then the checkpoint of this snapshot.

        Raises:
            OSError: the disk refused, and more than `MAX_WAITING` checkpoints wait.
        """
        self.last_save = time.monotonic()
        if snapshot.scheduled:
            self.waiting.append(snapshot)
        try:
            self.flush()
            if not snapshot.scheduled:
                self._write(snapshot)
        except OSError as error:
            # Each waiting checkpoint is a copy of the weights and the optimizer state.
            if len(self.waiting) > MAX_WAITING:
                raise
            self.hooks.log.warning(
                "step %d could not be saved (%s: %s); the checkpoint before it is unchanged, and "
                "training goes on",
                snapshot.info.step,
                error.filename or self.folder,
                error.strerror,
            )

    def flush(self) -> None:
        """Write the waiting checkpoints, oldest first.

        Raises:
            OSError: the disk refused.
        """
        while self.waiting:
            self._write(self.waiting[0])
            del self.waiting[0]

    def _write(self, snapshot: Snapshot) -> None:
        # Before the checkpoint, which has the size and the hash of the log.
        self.metrics.flush()
        checkpoints.save(
            self.folder,
            snapshot.weights,
            snapshot.state,
            snapshot.info,
            snapshot.scheduled,
            self.hooks.check_lease,
        )
        self.hooks.check_lease()
        try:
            # After the checkpoint: until it is complete, a resume needs the old checkpoints.
            checkpoints.prune(self.folder, self._needed_steps(snapshot.info))
        except (OSError, StoreError) as error:
            self.hooks.log.warning(
                "old checkpoints could not be removed (%s); the next save tries again", error
            )

    def _needed_steps(self, newest: TrainingState) -> set[int]:
        """Steps whose weights averaging may still use."""
        chosen = TrainingProgress.at(newest).chosen_step(self.config.patience)
        steps = [checkpoint.step for checkpoint in checkpoints.scheduled(self.folder)]
        up_to_chosen = [step for step in steps if step <= chosen]
        # With patience, a later step may become the best.
        later = [step for step in steps if step > chosen]
        return {*up_to_chosen[-self.keep :], *later[-self.keep :]}
