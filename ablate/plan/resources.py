"""Check that a machine has enough memory and disk for the missing runs of a study, before anything
is prepared.
"""

from __future__ import annotations

import heapq
import math
import shutil
from collections.abc import Iterable

from ablate.analysis.stages import Stage
from ablate.config import cost
from ablate.config.memory import CUDA_CONTEXT, SMALLEST_MICRO_BATCH, peak_memory
from ablate.errors import MachineError
from ablate.formatting import size
from ablate.parts.cost import BYTES
from ablate.plan.plan import device_kind
from ablate.store import Results
from ablate.store.checkpoints import RESUMABLE
from ablate.store.files import is_there, size_of
from ablate.store.jobs import Resources
from ablate.store.machine import cores, gpu_memory, memory, visible_gpus
from ablate.study import Run, Runs


def resource_faults(
    stage: Stage, results: Results, resources: Resources, pilots: int | None = None
) -> tuple[str, ...]:
    """A line if the memory is too small for the largest row, and a line if the disk is too small.

    Args:
        stage: the current stage of the study.
        results: results root; its disk is checked.
        resources: resources that the runs may occupy.
        pilots: number of pilots of a cluster, whose memory is checked by its profile; None for this
            machine.
    """
    devices = visible_gpus() if device_kind(resources.device) == "cuda" else cores()
    processes = resources.processes or 1
    n_parallel = pilots or resources.jobs or max(1, devices // processes)
    faults = disk_faults(stage.known_runs, results, n_parallel)
    if pilots:
        return faults
    parts = [stage.selected] if stage.trials is None else [stage.trials, stage.selected]
    return *memory_faults(parts, results, resources), *faults


def memory_faults(parts: Iterable[Runs], results: Results, resources: Resources) -> tuple[str, ...]:
    """A line if the largest row that must still be trained does not fit into the memory of its
    device, even with the smallest micro-batches. Empty if the size of the memory is not known.
    """
    kind = device_kind(resources.device)
    processes = resources.processes or 1
    place = "this machine"
    available: int | None = memory()
    if kind == "cuda":
        place = "a GPU of this machine"
        available = gpu_memory()
    if available is None:
        return ()
    label = ""
    largest = 0
    remedy = ""
    for runs in parts:
        for row in runs.rows:
            if all(results.run(run.id).has_result for run in runs.of(row)):
                continue
            part = math.ceil(row.config.batch_tokens / processes)
            tokens = min(SMALLEST_MICRO_BATCH, part)
            V = runs.data_of(row).vocab_size
            needed = peak_memory(row.config, V, tokens, kind, processes=processes)
            if needed > largest:
                label = row.label
                largest = needed
                remedy = "" if row is runs.base else ", or leave the row out with --rows"
    # Each process of a run has its own GPU, and all processes share the memory of a CPU.
    needed = largest + CUDA_CONTEXT if kind == "cuda" else processes * largest
    if not largest or needed <= available:
        return ()
    return (
        f"memory: {label} needs {size(needed)} even with the smallest micro-batches, and {place} "
        f"has {size(available)}; make the model smaller{remedy}",
    )


def disk_faults(runs: Iterable[Run], results: Results, n_parallel: int) -> tuple[str, ...]:
    """A line if the disk is too small for runs of which `n_parallel` are in training at the same
    time.

    Every run leaves the weights that it averages. A run in training also holds its checkpoints.
    """
    kept = 0  # bytes that runs leave
    written = 0  # bytes that runs have written so far
    working: list[int] = []  # further bytes of each run while it trains
    for run in runs:
        folder = results.run(run.id)
        config = run.config
        V = run.data.vocab_size
        if is_there(folder.checkpoints):
            written += size_of(folder.checkpoints.glob("*.safetensors"))
        if folder.has_result:  # lacks only a decoding
            continue
        averaged = config.average_checkpoints * BYTES * cost.parameters(config, V)
        kept += averaged
        # The oldest checkpoint is removed only after the newest is complete.
        working.append(max(0, cost.run_bytes(config, V, RESUMABLE + 1) - averaged))
    # In the worst case, the runs that need most are in training at the same time.
    needed = kept + sum(heapq.nlargest(n_parallel, working)) - written
    # `disk_usage` needs a folder that exists, and the results root may not exist yet.
    root = results.root
    existing = next(folder for folder in (root, *root.absolute().parents) if folder.is_dir())
    disk = shutil.disk_usage(existing)
    free = disk.free
    if needed <= free or not disk.total:  # some file systems do not know their size
        return ()
    return (
        f"{root}: the missing runs need {size(needed)}, and {size(free)} are free; make room "
        "(`ablate clean STUDY` lists removable files), use --results on another disk, or start "
        "with fewer --rows",
    )


def refuse_full_disk(runs: Iterable[Run], results: Results, n_parallel: int) -> None:
    """Refuse to start runs for which the disk is too small.

    Raises:
        MachineError: the disk is too small. The message has the needed and the free space.
    """
    faults = disk_faults(runs, results, n_parallel)
    if faults:
        raise MachineError(*faults)
