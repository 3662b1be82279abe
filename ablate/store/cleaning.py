"""Removable files of a results root: leftovers of kills and damage, and weights that only further
decodings need.

Without any cleaning, an unfinished run keeps its two newest resumable checkpoints and the weights
that averaging may use; a finished run keeps the weights that its decodings average; a diverged run
keeps none.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ablate.store import checkpoints, files
from ablate.store.layout import RunFolder
from ablate.store.lease import Lease, LeaseLost
from ablate.store.records import if_readable


@dataclass(frozen=True)
class Removable:
    """Files of one run that may be removed: leftovers, and the weights of a finished run."""

    folder: RunFolder
    leftovers: tuple[Path, ...]
    weights: tuple[Path, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, each manifest before the files that it describes."""
        return (*self.leftovers, *sorted(self.weights, key=lambda path: path.suffix != ".json"))


def removable_files(folder: RunFolder, weights: bool) -> Removable:
    """Find the removable files of a run; `weights` adds those of a finished run."""
    valid = checkpoints.valid(folder.checkpoints)
    of_valid = {path for checkpoint in valid for path in checkpoint.files}
    leftovers: list[Path] = []
    for directory in folder.folders:
        leftovers += (*directory.glob(".*.tmp"), *directory.glob("*.damaged"))
    leftovers += [path for path in folder.checkpoints.glob("*.safetensors") if path not in of_valid]
    result = if_readable(folder.read_result)  # else the checkpoints are needed to make it again
    if result is None:
        return Removable(folder, tuple(sorted(leftovers)), ())
    # Left by a kill after the result was published, and before what it does not need was removed.
    kept: set[Path] = set()
    for checkpoint in valid:
        # Some results name no steps.
        keeps_all = not result.kept_steps and result.outcome == "done"
        if keeps_all or checkpoint.step in result.kept_steps:
            kept |= {checkpoint.weights, checkpoint.manifest}
    leftovers += filter(Path.exists, of_valid - kept)
    if not weights:
        kept.clear()
    removable = tuple(filter(Path.exists, sorted(kept)))
    return Removable(folder, tuple(sorted(leftovers)), removable)


def size_of(paths: Iterable[Path]) -> int:
    """Bytes of files, and of all files in a folder; one that disappears counts as 0."""
    total = 0
    for path in paths:
        try:
            status = path.lstat()
            total += size_of(path.iterdir()) if stat.S_ISDIR(status.st_mode) else status.st_size
        except OSError:
            continue
    return total


def remove_files(removable: Removable, weights: bool) -> int | None:
    """Remove the files while holding the lease; the bytes freed, or None without the lease."""
    lease = Lease(removable.folder.lease)
    if not lease.try_to_take():
        return None
    try:
        paths = removable_files(removable.folder, weights).paths  # the run may have moved on since
        freed = size_of(paths)
        for path in paths:
            # This process may have been suspended for longer than the lease's term.
            lease.check()
            files.remove(path)  # a folder that was quarantined, too
        return freed
    except LeaseLost:
        return None
    finally:
        lease.release()
