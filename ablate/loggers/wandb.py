"""Weights & Biases, offline: files in results/<study>/wandb, one folder per run; `wandb sync`
uploads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import wandb

from ablate.loggers.base import LoggedRun, Point, RunFolders


class WeightsAndBiases:
    """Writes offline runs. Nothing is sent before `wandb sync`."""

    def __init__(self, folder: Path) -> None:
        self.folders = RunFolders(folder / "wandb")

    def open(self, run: LoggedRun) -> _OfflineRun | None:
        """Start an offline run with the same id."""
        return None if self.folders.is_complete(run) else _OfflineRun(self.folders, run)


class _OfflineRun:
    known = 0

    def __init__(self, folders: RunFolders, run: LoggedRun) -> None:
        self.folders, self.run = folders, run
        self.folder = folders.create(run.name)
        self.run_log = wandb.init(
            project=run.study,
            id=run.id,
            name=run.name,
            group=run.row,
            dir=str(self.folder),
            config=dict(run.settings),
            mode="offline",
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
            ),
        )

    def add(self, points: Sequence[Point]) -> None:
        for point in points:
            self.run_log.log(dict(point.values), step=point.step)

    def close(self, scores: Mapping[str, float] | None) -> None:
        if scores is not None:
            self.run_log.summary.update(dict(scores))
        self.run_log.finish()
        if scores is not None:
            self.folders.mark_complete(self.folder, self.run)
