"""Folders of records that can only be appended to: each launch writes them anew, so nothing stands twice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ablate.loggers.interface import LoggedRun
from ablate.store.files import read_json, write_json


class RecordFolders:
    """A folder a run, and beside it what says that its record is whole."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def fresh(self, name: str) -> Path:
        """The run's folder, empty."""
        folder = self.root / _file_name(name)
        self._mark(folder).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def is_whole(self, run: LoggedRun) -> bool:
        """Whether this run's record was written to its end, with the scores of all that it is to be decoded in."""
        mark = read_json(self._mark(self.root / _file_name(run.name)))
        return mark is not None and (mark["run"], mark.get("decodings")) == (run.id, list(run.decodings))

    def close(self, folder: Path, run: LoggedRun) -> None:
        """The record is written to its end."""
        write_json(self._mark(folder), {"run": run.id, "decodings": run.decodings}, durable=False)

    def _mark(self, folder: Path) -> Path:
        return folder.with_name(f".{folder.name}.whole.json")


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9=._+ -]", "_", name)
