"""What of a results root could go: what kills and damage have left, and weights that only a further use would need.

The policy without any cleaning: an unfinished run keeps its two newest resumable checkpoints and the weights that
averaging may still ask for; a finished one the weights that its decodings average; a diverged one none.
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
class Waste:
    """Files of one run that could go, and why."""

    folder: RunFolder
    leftovers: tuple[Path, ...]
    weights: tuple[Path, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of them; the manifest of a checkpoint first, so that it never stands for files that are gone."""
        return (*self.leftovers, *sorted(self.weights, key=lambda path: path.suffix != ".json"))


def waste_of(folder: RunFolder, weights: bool) -> Waste:
    """What could go of a run; `weights`: also those of a finished one, which a table does not need."""
    named = {p for g in checkpoints.generations(folder.checkpoints) for p in (g.weights, g.state, g.manifest)}
    places = (folder.path, folder.checkpoints, folder.translations("").parent)
    left = [path for place in places for pattern in (".*.tmp", "*.damaged") for path in place.glob(pattern)]
    left += [path for path in folder.checkpoints.glob("*.safetensors") if path not in named]
    kept = tuple(path for path in sorted(named) if path.exists()) if weights and _is_finished(folder) else ()
    return Waste(folder, tuple(sorted(left)), kept)


def size_of(paths: Iterable[Path]) -> int:
    """Bytes of these files; one that has gone meanwhile has none."""
    total = 0
    for path in paths:
        try:
            total += path.lstat().st_size
        except OSError:
            continue
    return total


def remove(waste: Waste, weights: bool) -> int | None:
    """Remove what could go, looked at anew as the only one at work on the run; bytes, or None where another is."""
    lease = Lease(waste.folder.lease)
    if not lease.try_to_take():
        return None
    try:
        paths = waste_of(waste.folder, weights).paths
        freed = size_of(paths)
        for path in paths:
            lease.check()
            path.unlink(missing_ok=True)
        return freed
    finally:
        lease.release()


def _is_finished(folder: RunFolder) -> bool:
    try:
        return folder.read_result() is not None
    except StoreError:
        return False  # its weights are what the result will be made again from
