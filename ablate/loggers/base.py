"""The interface of a logger, and the loggers that `--log` knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ablate.errors import Damaged, UsageError, did_you_mean, listed
from ablate.store.files import read_json, remove, write_json


@dataclass(frozen=True)
class Point:
    """One line of a run's metrics log: values by name (such as loss and lr, or dev_perplexity)
    after `step` steps.
    """

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class LoggedRun:
    """A run, as loggers see it.

    name: the row's label, with the seed if the study has several.
    settings: configuration fields by name, and the seed.
    decodings: ids of all decodings that the study asks for; a record is complete with the scores of
        all.
    """

    id: str
    study: str
    name: str
    row: str
    seed: int
    settings: Mapping[str, Any]
    decodings: tuple[str, ...]


class RunLogger(Protocol):
    """Receives the points of one run."""

    @property
    def known(self) -> int:
        """Number of points that an earlier launch has sent; only the points after these are
        added.
        """

    def add(self, points: Sequence[Point]) -> None:
        """Log further points."""

    def close(self, scores: Mapping[str, float] | None) -> None:
        """End the record; `scores` are those of a finished run, None for an unfinished one."""


class Logger(Protocol):
    """One kind of dashboard."""

    def open(self, run: LoggedRun) -> RunLogger | None:
        """Start logging a run; None if its record is already complete."""


# Characters of a folder; with its mark and a temporary suffix, file systems allow 255
LONGEST_NAME = 150
# Name for --log -> (module, class, package that must be installed).
LOGGERS = {
    "tensorboard": ("ablate.loggers.tensorboard", "TensorBoard", "tensorboard"),
    "mlflow": ("ablate.loggers.mlflow", "MLflow", "mlflow"),
    "wandb": ("ablate.loggers.wandb", "WeightsAndBiases", "wandb"),
}


def select_loggers(names: Iterable[str]) -> dict[str, Callable[[Path], Logger]]:
    """Return a factory for each named logger, which takes the study's folder of results.

    The logger's package is imported only when its factory is called.

    Raises:
        UsageError: no logger has this name, or its package is not installed.
    """
    factories: dict[str, Callable[[Path], Logger]] = {}
    for name in names:
        if name not in LOGGERS:
            raise UsageError(
                f'--log: "{name}" is not {listed(LOGGERS)}{did_you_mean(name, LOGGERS)}'
            )
        module, kind, package = LOGGERS[name]
        # find_spec does not import the package, which may take seconds.
        if find_spec(package) is None:
            raise UsageError(
                f"--log {name}: not installed; pip install 'ablate-transformer[{name}]'"
            )
        factories[name] = partial(_make, module, kind)
    return factories


def _make(module: str, kind: str, folder: Path) -> Logger:
    logger: Logger = getattr(import_module(module), kind)(folder)
    return logger


class RunFolders:
    """One folder per run for formats that can only be appended to, and a mark beside each complete
    folder.

    An incomplete folder is written anew by the next launch, so that no point is in it twice.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, name: str) -> Path:
        """Return an empty folder for the run; an earlier, incomplete one is removed."""
        folder = self.root / _file_name(name)
        # Event files can only be appended to: points that the run repeats after a crash would
        # appear twice.
        for old in (self._mark(folder), folder):
            remove(old)
        folder.mkdir(parents=True)
        return folder

    def is_complete(self, run: LoggedRun) -> bool:
        """Whether the run's folder holds every point and the scores of every decoding."""
        try:
            mark = read_json(self._mark(self.root / _file_name(run.name)))
        except Damaged:  # the record is written again
            return False
        return mark is not None and (mark["run"], mark.get("decodings")) == (
            run.id,
            list(run.decodings),
        )

    def mark_complete(self, folder: Path, run: LoggedRun) -> None:
        """Mark the run's folder as complete."""
        write_json(self._mark(folder), {"run": run.id, "decodings": run.decodings}, durable=False)

    def _mark(self, folder: Path) -> Path:
        return folder.with_name(f".{folder.name}.whole.json")


def _file_name(name: str) -> str:
    """The name of a run as that of a file: another one for every name, and not longer than file
    systems allow.
    """
    # No dot in front: `.` and `..` would be the folder of all runs and that of the study, which
    # `create` would remove.
    text = re.sub(r"^\.|[^A-Za-z0-9=._+ -]", "_", name)[:LONGEST_NAME]
    # Labels such as β and δ would otherwise have the same folder, and each run would remove the
    # other's.
    return text if text == name else f"{text} {sha256(name.encode()).hexdigest()[:8]}"
