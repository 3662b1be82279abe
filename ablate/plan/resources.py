"""Whether a machine has the memory and the disk that the missing runs of a study need, before
anything is prepared.
"""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Iterable

from ablate.config import cost
from ablate.config.memory import CUDA_CONTEXT
from ablate.errors import MachineError
from ablate.formatting import size
from ablate.parts.cost import BYTES
from ablate.plan.plan import Plan
from ablate.store import Results
from ablate.store.checkpoints import RESUMABLE
from ablate.store.files import is_there, size_of
from ablate.store.machine import cores, gpu_memory, memory, visible_gpus
from ablate.study import Run


def resource_faults(
    plan: Plan,
    runs: Iterable[Run],
    results: Results,
    jobs: int | None = None,
    pilots: int | None = None,
) -> tuple[str, ...]:
    """A line for the memory of the largest run and one for the disk, if the plan's device lacks
    them.

    Args:
        plan: of the study.
        runs: that are missing, as far as they are known.
        results: root of the results, on the disk that is checked.
        jobs: runs in training at once; None for one on each device, or on each core.
        pilots: of a cluster, whose profile checks their memory; None for this machine.
    """
    devices = visible_gpus() if plan.device == "cuda" else cores()
    at_once = pilots or jobs or max(1, devices // plan.processes)
    of_disk = disk_faults(runs, results, at_once)
    return of_disk if pilots else (*memory_faults(plan), *of_disk)


def memory_faults(plan: Plan) -> tuple[str, ...]:
    """A line if the largest run that is left does not fit into the memory of the plan's device,
    even with the smallest micro-batches; none also if that memory is not known.
    """
    if plan.device == "cuda":
        where, together, own, available = "a GPU of this machine", 1, CUDA_CONTEXT, gpu_memory()
    else:
        where, together, own, available = "this machine", plan.processes, 0, memory()
    largest = max(plan.untrained.values(), key=lambda row: row.least_memory, default=None)
    if available is None or largest is None:
        return ()
    label, needed = largest.row.label, together * largest.least_memory + own
    if needed <= available:
        return ()
    remedy = "make the model smaller"
    if label != plan.planned.base.label:
        remedy += ", or leave the row out with --rows"
    return (
        f"memory: {label} needs {size(needed)} even with the smallest micro-batches, and {where} "
        f"has {size(available)}; {remedy}",
    )


def disk_faults(runs: Iterable[Run], results: Results, at_once: int) -> tuple[str, ...]:
    """A line if the disk is too small for these runs, `at_once` of them in training.

    Every run leaves the weights that it averages; those in training also hold their checkpoints.
    """
    kept = written = 0
    working = []
    for run in runs:
        folder, config, V = results.run(run.id), run.config, run.data.vocab_size
        if is_there(folder.checkpoints):
            written += size_of(folder.checkpoints.glob("*.safetensors"))
        if folder.has_result:  # it lacks only a decoding
            continue
        averaged = config.average_checkpoints * BYTES * cost.parameters(config, V)
        kept += averaged
        # A new checkpoint is whole before the oldest is removed.
        working.append(max(0, cost.run_bytes(config, V, RESUMABLE + 1) - averaged))
    # At worst, the runs that need most train at the same time.
    needed = kept + sum(heapq.nlargest(at_once, working)) - written
    # The root need not exist yet, and disk_usage needs a folder that does.
    root = results.root
    existing = next(folder for folder in (root, *root.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if needed <= free:
        return ()
    return (
        f"{root}: the missing runs need {size(needed)}, and {size(free)} are free; make room "
        "(`ablate clean STUDY` lists removable files), use --results on another disk, or start "
        "with fewer --rows",
    )


def refuse_full_disk(runs: Iterable[Run], results: Results, at_once: int) -> None:
    """Refuse to start these runs.

    Raises:
        MachineError: the disk is too small; names the space that is needed, and that is free.
    """
    faults = disk_faults(runs, results, at_once)
    if faults:
        raise MachineError(*faults)
