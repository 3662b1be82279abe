"""Verify stored runs by computing all hashes again."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ablate.errors import StoreError
from ablate.store import checkpoints
from ablate.store.files import verify
from ablate.store.layout import RunFolder
from ablate.store.records import CheckpointManifest, Record, Result
from ablate.store.score_cache import is_archived

T = TypeVar("T")


@dataclass
class Audit:
    """The outcome of a verification.

    files: number of files verified.
    faults: a line for each fault.
    """

    files: int = 0
    faults: list[str] = field(default_factory=list)

    def file(
        self, path: Path, expected: str, needed_by: Path | None = None, remedy: str = ""
    ) -> None:
        """Compare a file with its SHA-256.

        Args:
            path: the file.
            expected: SHA-256 of the file.
            needed_by: file without which `path` is not needed, so that a fault does not count if it
                has been removed; None if a fault always counts.
            remedy: what to do about a fault; empty if `ablate run` repairs the file.
        """
        try:
            verify(path, expected)
        except StoreError as error:
            if needed_by is not None and not os.path.lexists(needed_by):
                return
            self.faults += [f"{line}; {remedy}" if remedy else line for line in error.lines]
        self.files += 1

    def read(self, record: Callable[[], T | None]) -> T | None:
        """Read a record; None if it is absent or faulty."""
        try:
            content = record()
        except StoreError as error:
            self.files += 1
            self.faults.extend(error.lines)
            return None
        if content is not None:
            self.files += 1
        return content


def read_records(folder: RunFolder, into: Audit) -> dict[str, Record | None]:
    """Read the records of a run, by name; None for an absent or faulty record."""
    return {
        "run": into.read(folder.read_run),
        "execution": into.read(folder.read_execution),
        "provenance": into.read(folder.read_provenance),
        "failure": into.read(folder.read_failure),
        "result": into.read(folder.read_result),
    }


def audit(folder: RunFolder, into: Audit) -> None:
    """Verify the files of a run: records, checkpoints, metrics log, predictions."""
    result = read_records(folder, into)["result"]
    remedy = ""
    if result is not None:  # `ablate run` does not read the weights of a finished run
        remedy = f"remove {folder.path} to train the run again"
        for path in (folder.run, folder.execution, folder.provenance):
            if not os.path.lexists(path):
                into.faults.append(f"{path}: is missing")
    try:
        valid = {
            checkpoint.manifest: checkpoint for checkpoint in checkpoints.valid(folder.checkpoints)
        }
    except StoreError:  # reported below, when the manifest is read
        valid = {}
    # Including the damaged manifests, which `valid` leaves out.
    for manifest in sorted(folder.checkpoints.glob("*.json")):
        into.read(functools.partial(CheckpointManifest.read, manifest))
        checkpoint = valid.get(manifest)
        if checkpoint is not None:
            # A run in progress may remove these files at any time: the manifest before the weights,
            # and the state by itself.
            into.file(checkpoint.weights, checkpoint.sha256.weights, manifest, remedy)
            into.file(checkpoint.state, checkpoint.sha256.state, needed_by=checkpoint.state)
    if not isinstance(result, Result):  # an unfinished run still changes its other files
        return
    into.file(folder.metrics, result.metrics_sha256)
    for id, decoding in result.decodings.items():
        if decoding.sha256 is not None and not is_archived(folder, id):
            into.file(folder.predictions(id), decoding.sha256)
    steps = {checkpoint.step for checkpoint in valid.values()}
    # If there are neither manifests nor weights, `ablate clean --weights` has removed them.
    if steps or any(folder.checkpoints.glob("*.weights.safetensors")):
        for step in result.kept_steps:
            if step not in steps:
                missing = f"{folder.checkpoints}: the weights of step {step} are missing"
                into.faults.append(f"{missing}; {remedy}")
