"""Check that the disk has room for the missing runs."""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Iterable
from pathlib import Path

from ablate.config import RowConfig, cost
from ablate.errors import StoreError
from ablate.formatting import size
from ablate.store import Results
from ablate.store.checkpoints import RESUMABLE
from ablate.store.cleaning import size_of
from ablate.study import Study


def check_disk_space_of(
    study: Study, results: Results, missing: Iterable[str], at_once: int
) -> None:
    """Refuse to start if the disk is too small for the missing runs of a study, `at_once` of them
    in training.

    Raises:
        StoreError: names the space that is needed, and the space that is free.
    """
    runs, ids = {run.id: run for run in study.runs()}, list(missing)
    largest = max(run.data.vocab_size for run in runs.values())
    on_disk = sum(size_of(results.run(id).checkpoints.glob("*.safetensors")) for id in ids)
    to_train = [runs[id].config for id in ids if not results.run(id).result.exists()]
    check_disk_space(results.root, to_train, largest, at_once, on_disk)


def check_disk_space(
    root: Path, configs: Iterable[RowConfig], vocab_size: int, at_once: int, on_disk: int
) -> None:
    """Refuse to start if the disk is too small for the missing runs.

    Every run leaves the weights that it averages; the runs in training also hold their checkpoints.

    Args:
        root: of the results; it need not exist yet.
        configs: of the missing runs.
        vocab_size: of the largest vocabulary.
        at_once: number of runs in training at once.
        on_disk: bytes that these runs already use.

    Raises:
        StoreError: names the space that is needed, and the space that is free.
    """
    kept, working = 0, []
    for config in configs:
        weights = cost.BYTES * cost.parameters(config, vocab_size)
        kept += config.average_checkpoints * weights
        # A new checkpoint is whole before the oldest is removed.
        peak = cost.run_bytes(config, vocab_size, RESUMABLE + 1)
        working.append(max(0, peak - config.average_checkpoints * weights))
    # At worst, the runs that need most train at the same time.
    needed = kept + sum(heapq.nlargest(at_once, working)) - on_disk
    # disk_usage needs a folder that exists.
    existing = next(folder for folder in (root, *root.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise StoreError(
            f"{root}: the missing runs need {size(needed)}, and {size(free)} are free; make room "
            "(`ablate clean STUDY` lists removable files), use --results on another disk, or start "
            "with fewer --rows"
        )
