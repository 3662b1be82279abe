"""Whether a machine has the memory and the disk that the missing runs of a study need, before
anything is prepared.
"""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Iterable
from pathlib import Path

from ablate.config import RowConfig, cost
from ablate.config.memory import CUDA_CONTEXT
from ablate.errors import StoreError
from ablate.formatting import size
from ablate.plan.plan import Plan, takes_gpu
from ablate.store import Results, state_of
from ablate.store.checkpoints import RESUMABLE
from ablate.store.cleaning import size_of
from ablate.store.machine import cores, memory, visible_gpus
from ablate.store.nvidia import free_gpus
from ablate.study import Study


def resource_faults(
    plan: Plan, now: Study, results: Results, jobs: int | None = None
) -> tuple[str, ...]:
    """A line for the memory of the largest run and one for the disk, if the plan's device lacks
    them.

    Args:
        plan: of the study.
        now: its part that would be executed first.
        results: root of the results, on the disk that is checked; it is not if the plan is for
            another machine.
        jobs: runs in training at once; None for one on each device, or on each core.
    """
    if plan.gpu is not None:
        return memory_faults(plan)
    devices = visible_gpus() if takes_gpu(plan.device) else cores()
    at_once = jobs or max(1, devices // plan.processes)
    return (*memory_faults(plan), *disk_faults(now, results, at_once))


def memory_faults(plan: Plan) -> tuple[str, ...]:
    """A line if the largest run that is left does not fit into the memory of the plan's device,
    even with the smallest micro-batches; none also if that memory is not known.
    """
    kind, where, available = _memory_of(plan)
    together = plan.processes if kind == "cpu" else 1  # processes on this machine, or on a GPU
    own = CUDA_CONTEXT if kind == "cuda" else 0
    needed = {
        row.row.label: together * row.least_memory + own
        for id, (row, state) in plan.runs.items()
        if state not in ("done", "diverged") and id not in plan.trained
    }
    largest = max(needed, key=needed.__getitem__, default=None)
    if available is None or largest is None or needed[largest] <= available:
        return ()
    remedy = "" if largest == plan.study.base.label else ", or leave the row out with --rows"
    return (
        f"memory: {largest} needs {size(needed[largest])} even with the smallest micro-batches, "
        f"and {where} has {size(available)}; make the model smaller{remedy}",
    )


def _memory_of(plan: Plan) -> tuple[str, str, int | None]:
    """(Kind of the plan's device, its name in a message, its bytes of memory or None)."""
    if plan.gpu is not None:
        return "cuda", f"one {plan.device}", int(plan.gpu.memory)
    if takes_gpu(plan.device):
        return (
            "cuda",
            "a GPU of this machine",
            min((gpu.total for gpu in free_gpus()), default=None),
        )
    return "cpu", "this machine", memory()


def disk_faults(study: Study, results: Results, at_once: int) -> tuple[str, ...]:
    """A line if the disk is too small for the missing runs, `at_once` of them in training."""
    missing = []
    for row in study.rows:
        for run in study.runs_of(row):
            state = None if run.awaits_tuning else state_of(results.run(run.id), row.decoding)
            if state not in (None, "done", "diverged"):
                missing.append(run.id)
    try:
        check_disk_space_of(study, results, dict.fromkeys(missing), at_once)
    except StoreError as error:
        return error.lines
    return ()


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
