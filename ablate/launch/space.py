"""Whether the disk has room for what a study is still to write."""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Iterable
from pathlib import Path

from ablate.config import RowConfig, cost
from ablate.errors import StoreError
from ablate.formatting import size
from ablate.store.checkpoints import GENERATIONS


def check_space(root: Path, configs: Iterable[RowConfig], vocab_size: int, at_once: int, there: int) -> None:
    """Refuse to start what the disk has no room for.

    Every run leaves the weights that it averages; those that are at work at once hold their checkpoints too.

    Args:
        root: the results root; it need not exist yet.
        configs: of the runs that are missing.
        vocab_size: pieces.
        at_once: how many runs are at work at once.
        there: bytes that these runs have on the disk already.

    Raises:
        StoreError: saying what is needed and what is free.
    """
    kept, working = 0, []
    for config in configs:
        weights = cost.BYTES * cost.parameters(config, vocab_size)
        kept += config.average_checkpoints * weights
        peak = cost.run_bytes(config, vocab_size, GENERATIONS + 1)  # the newest is whole before the oldest goes
        working.append(max(0, peak - config.average_checkpoints * weights))
    needed = kept + sum(heapq.nlargest(at_once, working)) - there
    place = next(folder for folder in (root, *root.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise StoreError(
            f"{root}: the runs that are missing need {size(needed)}, and {size(free)} are free; make room "
            "(`ablate clean STUDY` says what could go), use --results on another disk, or begin with fewer --rows"
        )
