"""Weights & Biases, offline: files in results/<study>/wandb, with a folder for each run. `wandb
sync` uploads them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import wandb

from ablate.loggers.dashboards import OUTCOME, LoggedRun, Outcome, Point, RecordFolder


def start(folder: Path, run: LoggedRun) -> _OfflineRun | None:
    """Start an offline run with the id of the run, so that it replaces a run synced earlier."""
    logging.raiseExceptions = False  # else W&B prints a traceback for each line on a full disk
    record = RecordFolder(folder / "wandb", run)
    return None if record.mark.exists() else _OfflineRun(record, run)


class _OfflineRun:
    def __init__(self, record: RecordFolder, run: LoggedRun) -> None:
        self.record = record
        self.run = wandb.init(
            project=run.study,
            id=run.id,
            name=run.name,
            group=run.row,
            dir=record.clear(),
            config=dict(run.settings),
            mode="offline",
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, save_code=False, x_disable_stats=True
            ),
        )

    def log(self, points: Sequence[Point]) -> None:
        for step, values in points:
            self.run.log(dict(values), step=step)

    def finish(self, scores: Mapping[str, float] | None, outcome: Outcome) -> None:
        if scores is not None:
            self.run.summary.update({**scores, OUTCOME: outcome})
        self.run.finish(exit_code=int(outcome == "diverged"))
        if scores is not None:
            self.record.mark.touch()
