"""Removable files of a results root: leftovers of kills and damage, and weights that only further decodings need.

Without any cleaning, an unfinished run keeps its two newest resumable checkpoints and the weights that averaging may
use; a finished run keeps the weights that its decodings average; a diverged run keeps none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ablate.errors import StoreError
from ablate.store import checkpoints
from ablate.store.layout import RunFolder
from ablate.store.lease import Lease


@dataclass(frozen=True)
class Removable:
    """Files of one run that may be removed: leftovers, and the weights of a finished run."""

    folder: RunFolder
    leftovers: tuple[Path, ...]
    weights: tuple[Path, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, manifests before what they describe, so that no manifest outlives its files."""
        return (*self.leftovers, *sorted(self.weights, key=lambda path: path.suffix != ".json"))


def removable_files(folder: RunFolder, weights: bool) -> Removable:
    """Find the removable files of a run; `weights` adds those of a finished run, which a table does not need."""
    valid = {path for checkpoint in checkpoints.valid(folder.checkpoints) for path in checkpoint.files}
    leftovers = [path for each in folder.folders for pattern in (".*.tmp", "*.damaged") for path in each.glob(pattern)]
    leftovers += [path for path in folder.checkpoints.glob("*.safetensors") if path not in valid]
    kept = tuple(path for path in sorted(valid) if path.exists()) if weights and _is_finished(folder) else ()
    return Removable(folder, tuple(sorted(leftovers)), kept)


def size_of(paths: Iterable[Path]) -> int:
    """Total size of files in bytes; a file that disappears meanwhile counts as 0."""
    total = 0
    for path in paths:
        try:
            total += path.lstat().st_size
        except OSError:
            continue
    return total


def remove(removable: Removable, weights: bool) -> int | None:
    """Remove the files while holding the run's lease; the bytes freed, or None if another process holds it."""
    lease = Lease(removable.folder.lease)
    if not lease.try_to_take():
        return None
    try:
        paths = removable_files(removable.folder, weights).paths  # the run may have moved on since
        freed = size_of(paths)
        for path in paths:
            # This process may have been suspended for longer than the lease's term since the last file.
            lease.check()
            path.unlink(missing_ok=True)
        return freed
    finally:
        lease.release()


def _is_finished(folder: RunFolder) -> bool:
    try:
        return folder.read_result() is not None
    except StoreError:
        return False  # its weights are needed to make the result again
