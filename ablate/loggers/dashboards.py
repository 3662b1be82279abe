"""The dashboards that `--log` names, and the interface through which they receive the metrics of a
run.
"""

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

from ablate.errors import Fault, not_a_choice, wrong_option
from ablate.store.files import remove

# The names that --log takes. Each is the name of a package, and of a module in this folder.
LOGGERS = ("tensorboard", "mlflow", "wandb")
MAX_NAME_LENGTH = 150  # characters of the name of a folder; file systems allow 255 bytes

Outcome = Literal["done", "diverged", ""]
OUTCOME = "ablate.outcome"  # under this name, dashboards show the outcome of a run
Point = tuple[int, Mapping[str, float]]  # step, values by name


@dataclass(frozen=True)
class LoggedRun:
    """A run, as dashboards show it.

    name: label of the row, with the seed if the study has several seeds.
    settings: fields of the configuration by name, and the seed.
    decodings: ids of the decodings that the study asks for. The record of the run is complete when
        it has the scores of all of them.
    """

    id: str
    study: str
    name: str
    row: str
    seed: int
    settings: Mapping[str, Any]
    decodings: tuple[str, ...]


class RunLogger(Protocol):
    """The record of a run on a dashboard."""

    def log(self, points: Sequence[Point]) -> None:
        """Add points. A new launch sends all points of an unfinished run again."""

    def finish(self, scores: Mapping[str, float] | None, outcome: Outcome) -> None:
        """End the record.

        Args:
            scores: scores by name, which are NaN for a run that diverged; None for an unfinished
                run.
            outcome: outcome of the run; empty for an unfinished run.
        """


# A function that starts or continues the record of a run. It takes the results folder of the study,
# and returns None if the record is complete.
Start = Callable[[Path, LoggedRun], RunLogger | None]


def select_loggers(names: Iterable[str]) -> dict[str, Start]:
    """The start functions of loggers, by name. They import the package of a logger when called.

    Raises:
        UsageError: no logger has this name, or its package is not installed.
    """
    for name in names:
        if name not in LOGGERS:
            raise wrong_option("--log", not_a_choice(name, LOGGERS))
        # Importing the package may take seconds; find_spec does not import it.
        if find_spec(name) is None:
            remedy = f"pip install {name}"
            raise wrong_option("--log", Fault("is not installed", given=name, remedy=remedy))
    return {name: partial(_start, name) for name in names}


def _start(name: str, folder: Path, run: LoggedRun) -> RunLogger | None:
    logger: RunLogger | None = import_module(f"ablate.loggers.{name}").start(folder, run)
    return logger


class RecordFolder:
    """The folder of the record of a run, for dashboards whose files can only be appended to.

    A launch writes an incomplete record again from the start. An empty file, `mark`, exists if the
    record is complete: if it has all points of the run, and the scores of all decodings.
    """

    def __init__(self, parent: Path, run: LoggedRun) -> None:
        self.path = parent / folder_name(run.name)
        content = sha256(" ".join((run.id, *run.decodings)).encode()).hexdigest()[:16]
        self.mark = self.path / f"complete-{content}"

    def clear(self) -> str:
        """Empty the folder, and return its path."""
        remove(self.path)
        self.path.mkdir(parents=True)
        return str(self.path)


def folder_name(name: str) -> str:
    """The name of the folder for a run of this name. Characters that file systems may not allow are
    replaced; then a hash of the name is added, so that different runs have different folders.
    """
    text = re.sub(r"^\.|[^A-Za-z0-9=._+ -]", "_", name)[:MAX_NAME_LENGTH]
    return text if text == name else f"{text} {sha256(name.encode()).hexdigest()[:8]}"
