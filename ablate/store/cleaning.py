"""Removable files of a results root: leftovers of killed processes, damaged files, and weights that
only new decodings would need.

Without cleaning, an unfinished run keeps its two newest resumable checkpoints, and the weights that
averaging may use. A finished run keeps the weights that its decodings average. A diverged run keeps
no weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ablate.store import checkpoints, files
from ablate.store.layout import RunFolder
from ablate.store.lease import Lease, LeaseLost
from ablate.store.records import none_if_unreadable


@dataclass(frozen=True)
class Removable:
    """Files of one run that may be removed.

    folder: folder of the run.
    leftovers: files that nothing needs.
    weights: weights and manifests of a finished run, which only new decodings would need.
    """

    folder: RunFolder
    leftovers: tuple[Path, ...]
    weights: tuple[Path, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, each manifest before the files that it describes."""
        return (*self.leftovers, *sorted(self.weights, key=lambda path: path.suffix != ".json"))


def removable_files(folder: RunFolder, weights: bool) -> Removable:
    """Find the removable files of a run; with `weights`, also the weights of a finished run."""
    valid = checkpoints.valid(folder.checkpoints)
    valid_files = {path for checkpoint in valid for path in checkpoint.files}
    leftovers: list[Path] = []
    for directory in folder.folders:
        leftovers += (*directory.glob(".*.tmp"), *directory.glob("*.damaged"))
    for path in folder.checkpoints.glob("*.safetensors"):
        if path not in valid_files:
            leftovers.append(path)
    result = none_if_unreadable(folder.read_result)
    if result is None:  # the run needs its checkpoints to make a result
        return Removable(folder, tuple(sorted(leftovers)), ())
    result_files: set[Path] = set()  # files that new decodings would need
    for checkpoint in valid:
        # Results of earlier versions do not list the kept steps: all weights may be needed.
        keeps_all = result.outcome == "done" and not result.kept_steps
        if keeps_all or checkpoint.step in result.kept_steps:
            result_files |= {checkpoint.weights, checkpoint.manifest}
    # Further files are left if the worker is killed between publishing the result and pruning the
    # checkpoints.
    leftovers += filter(Path.exists, valid_files - result_files)
    removable = tuple(filter(Path.exists, sorted(result_files))) if weights else ()
    return Removable(folder, tuple(sorted(leftovers)), removable)


def remove_files(removable: Removable, weights: bool) -> int | None:
    """Remove the files while holding the lease of the run.

    Returns:
        The number of bytes freed; None if another process holds the lease.
    """
    lease = Lease(removable.folder.lease)
    if not lease.try_to_take():
        return None
    try:
        # Found again, because the run may have continued in the meantime.
        paths = removable_files(removable.folder, weights).paths
        freed = files.size_of(paths)
        for path in paths:
            lease.check()  # this process may have been suspended for longer than the lease's term
            files.remove(path)
        return freed
    except LeaseLost:
        return None
    finally:
        lease.release()
