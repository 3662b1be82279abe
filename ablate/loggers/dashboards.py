"""What a dashboard receives of a run, and the dashboards that `--log` knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from ablate.errors import UsageError, did_you_mean, listed
from ablate.store.files import remove

# Names for --log: those of the packages that must be installed, and of the modules here.
LOGGERS = ("tensorboard", "mlflow", "wandb")
LONGEST_NAME = 150  # characters of a folder's name; file systems allow 255 bytes

Outcome = Literal["done", "diverged", ""]
OUTCOME = "ablate.outcome"  # its name on dashboards
Point = tuple[int, Mapping[str, float]]  # a step, and what was measured there by name


@dataclass(frozen=True)
class LoggedRun:
    """A run, as dashboards show it.

    name: the row's label, with the seed if the study has several.
    settings: configuration fields by name, and the seed.
    decodings: ids of all decodings that the study asks for; a record with the scores of all is
        complete.
    """

    id: str
    study: str
    name: str
    row: str
    seed: int
    settings: Mapping[str, Any]
    decodings: tuple[str, ...]


class RunLogger(Protocol):
    """The record of one run on a dashboard."""

    def log(self, points: Sequence[Point]) -> None:
        """Add points. A launch sends all points of a run from the first on."""

    def finish(self, scores: Mapping[str, float] | None, outcome: Outcome) -> None:
        """End the record; `scores` are those of a run that has ended, NaN if it diverged, and None
        for an unfinished one, whose outcome is empty.
        """


# Starts the record of a run, or goes on with it, from the study's folder of results; None if it is
# already complete.
Start = Callable[[Path, LoggedRun], RunLogger | None]


def select_loggers(names: Iterable[str]) -> dict[str, Start]:
    """Return the start of each named logger, whose package is imported when it is called.

    Raises:
        UsageError: no logger has this name, or its package is not installed.
    """
    for name in names:
        if name not in LOGGERS:
            raise UsageError(
                f'--log: "{name}" is not {listed(LOGGERS)}{did_you_mean(name, LOGGERS)}'
            )
        # find_spec does not import the package, which may take seconds.
        if find_spec(name) is None:
            raise UsageError(f"--log {name}: not installed; pip install {name}")
    return {name: partial(_start, name) for name in names}


def _start(name: str, folder: Path, run: LoggedRun) -> RunLogger | None:
    logger: RunLogger | None = import_module(f"ablate.loggers.{name}").start(folder, run)
    return logger


class RecordFolder:
    """The folder of a run for a format that can only be appended to: what an interrupted launch
    has left is written anew, and a mark is added when the record is complete: it holds every point
    of this run and the scores of every decoding.
    """

    def __init__(self, parent: Path, run: LoggedRun) -> None:
        self.path = parent / folder_name(run.name)
        content = sha256(" ".join((run.id, *run.decodings)).encode()).hexdigest()[:16]
        self.mark = self.path / f"complete-{content}"

    def clear(self) -> str:
        """Make the folder empty, and return its path."""
        remove(self.path)
        self.path.mkdir(parents=True)
        return str(self.path)


def folder_name(name: str) -> str:
    """The name of a run as that of a folder: another one for every name (labels such as β and δ
    have a hash), and never `.` or `..`, the folders of all runs and of the study.
    """
    text = re.sub(r"^\.|[^A-Za-z0-9=._+ -]", "_", name)[:LONGEST_NAME]
    return text if text == name else f"{text} {sha256(name.encode()).hexdigest()[:8]}"
