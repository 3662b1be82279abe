"""Weights & Biases, offline: records in results/<study>/wandb, a folder a run; `wandb sync` uploads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import wandb

from ablate.loggers.folder import RecordFolders
from ablate.loggers.interface import LoggedRun, Point


class WeightsAndBiases:
    """Writes offline runs; nothing leaves the machine before `wandb sync`."""

    def __init__(self, folder: Path) -> None:
        self.folders = RecordFolders(folder / "wandb")

    def open(self, run: LoggedRun) -> _Offline | None:
        """A new offline run, with the run's own id."""
        return None if self.folders.is_whole(run) else _Offline(self.folders, run)


class _Offline:
    known = 0

    def __init__(self, folders: RecordFolders, run: LoggedRun) -> None:
        self.folders, self.run = folders, run
        self.folder = folders.fresh(run.name)
        self.record = wandb.init(
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
            self.record.log(dict(point.values), step=point.step)

    def close(self, scores: Mapping[str, float] | None) -> None:
        if scores is not None:
            self.record.summary.update(dict(scores))
        self.record.finish()
        if scores is not None:
            self.folders.close(self.folder, self.run)
