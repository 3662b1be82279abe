"""Find where a training continues: at a checkpoint, at its end, or at its first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ablate.errors import StoreError
from ablate.kernels.ranks import Ranks
from ablate.store import checkpoints
from ablate.store.records import TrainingState
from ablate.training.hooks import RunHooks
from ablate.training.metrics_log import MetricsLog
from ablate.training.progress import TrainingProgress


@dataclass(frozen=True)
class ResumePoint:
    """Where a training continues.

    progress: progress of the training at this point.
    checkpoint: checkpoint from which weights and optimizer state are loaded; None if the training
        begins, and if it has ended, so that only its result is missing.
    """

    progress: TrainingProgress
    checkpoint: checkpoints.Checkpoint | None = None


def find_resume_point(
    folder: Path,
    metrics: MetricsLog,
    hooks: RunHooks,
    is_finished: Callable[[TrainingProgress], bool],
    ranks: Ranks,
) -> ResumePoint:
    """Find where all ranks continue. The first rank cuts the metrics log to the step found.

    Args:
        folder: folder of the checkpoints.
        metrics: the metrics log.
        hooks: hooks of the training.
        is_finished: whether a training with this progress has ended.
        ranks: the processes that train the run together; the first rank reads the files.
    """
    message = None
    if ranks.is_first:
        point = _first_rank_point(folder, metrics, hooks, is_finished)
        manifest = None
        if point.checkpoint is not None:
            manifest = point.checkpoint.model_dump(mode="json")
        message = (asdict(point.progress), manifest)
    progress, manifest = ranks.all_gather_objects(message)[0]
    checkpoint = None
    if manifest is not None:
        checkpoint = checkpoints.Checkpoint(folder=folder, **manifest)
    return ResumePoint(TrainingProgress(**progress), checkpoint)


def _first_rank_point(
    folder: Path,
    metrics: MetricsLog,
    hooks: RunHooks,
    is_finished: Callable[[TrainingProgress], bool],
) -> ResumePoint:
    # `newest` quarantines damaged checkpoints, which only the holder of the lease may do.
    hooks.check_lease()
    checkpoint, skipped = checkpoints.newest(folder)
    for line in skipped:
        hooks.log.warning(line)
    if checkpoint is not None:
        if _cut(metrics, checkpoint.info):
            return ResumePoint(TrainingProgress.at(checkpoint.info), checkpoint)
        hooks.log.warning(
            "%s: has lost lines that it had at step %d; the run starts over",
            metrics.path,
            checkpoint.step,
        )
        checkpoints.remove_all(folder)
    else:
        # After the end of training, the optimizer state may have been deleted. `newest` ignores
        # checkpoints without it.
        ended = _ended_progress(folder, metrics, hooks, is_finished)
        if ended is not None:
            return ResumePoint(ended)
    metrics.cut()
    return ResumePoint(TrainingProgress())


def _ended_progress(
    folder: Path,
    metrics: MetricsLog,
    hooks: RunHooks,
    is_finished: Callable[[TrainingProgress], bool],
) -> TrainingProgress | None:
    """The progress of a training that has ended, if the weights of its last scheduled checkpoint
    are undamaged; None otherwise.
    """
    scheduled = checkpoints.scheduled(folder)
    if not scheduled:
        return None
    last = scheduled[-1]
    try:
        checkpoints.verified_weights(last)
    except StoreError as error:
        hooks.log.warning("%s; the run starts over", error)
        return None
    progress = TrainingProgress.at(last.info)
    if not is_finished(progress) or not _cut(metrics, last.info):
        return None
    hooks.log.info("training had ended at step %d", last.step)
    return progress


def _cut(metrics: MetricsLog, state: TrainingState) -> bool:
    """Cut the metrics log to its size at a checkpoint, if it begins with the same bytes as then."""
    return metrics.cut(state.metrics_bytes, state.metrics_sha256)
