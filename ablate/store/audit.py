"""Whether what is stored is what was written: every hash of a run, taken again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.errors import StoreError
from ablate.store import checkpoints
from ablate.store.files import read_json, verify
from ablate.store.layout import RunFolder


@dataclass
class Audit:
    """How many files were looked at, and a line for each that is not what was written."""

    files: int = 0
    faults: list[str] = field(default_factory=list)

    def file(self, path: Path, expected: str) -> None:
        """Compare a file with its hash."""
        self.files += 1
        try:
            verify(path, expected)
        except StoreError as error:
            self.faults.extend(error.lines)

    def json(self, path: Path) -> dict[str, Any] | None:
        """What a sealed JSON file holds; None where it is absent or not what was written."""
        try:
            content = read_json(path)
        except StoreError as error:
            self.files += 1
            self.faults.extend(error.lines)
            return None
        self.files += content is not None
        return content


def audit(folder: RunFolder, into: Audit) -> None:
    """Look at all that a run has stored: what it is, its checkpoints, and what its result speaks of."""
    for path in (folder.run, folder.execution, folder.provenance, folder.failure):
        into.json(path)
    for manifest in sorted(folder.checkpoints.glob("*.json")):
        if into.json(manifest) is not None:
            for path, expected in _parts(folder, manifest):
                into.file(path, expected)
    result = into.json(folder.result)
    if result is None:
        return
    try:
        folder.read_result()  # that it is of this run, and of this version
    except StoreError as error:
        into.faults.extend(error.lines)
        return
    into.file(folder.metrics, result["metrics"]["sha256"])
    for name, decoding in result.get("decodings", {}).items():
        into.file(folder.translations(name), decoding["sha256"])
    kept = {generation.step for generation in checkpoints.generations(folder.checkpoints)}
    cleaned = not kept  # by `ablate clean --weights`
    lost = [step for step in result["kept_steps"] if step not in kept and not cleaned]
    into.faults += [f"{folder.checkpoints}: has lost the weights of step {step}" for step in lost]


def _parts(folder: RunFolder, manifest: Path) -> Iterator[tuple[Path, str]]:
    for generation in checkpoints.generations(folder.checkpoints):
        if generation.manifest == manifest:
            yield generation.weights, generation.hashes["weights"]
            if generation.state.exists():  # of those that a resume may need
                yield generation.state, generation.hashes["state"]
