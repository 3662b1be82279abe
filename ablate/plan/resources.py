"""Whether a machine has the memory and the disk that the missing runs of a study need, before
anything is prepared.
"""

from __future__ import annotations

import heapq
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
    """A line for the memory of the largest row and one for the disk, if they are too small for the
    runs that are left.

    Args:
        stage: where the study is.
        results: root of the results, on the disk that is checked.
        resources: that the runs may occupy.
        pilots: of a cluster, whose profile checks their memory; None for this machine.
    """
    devices, processes = cores(), resources.processes or 1
    if device_kind(resources.device) == "cuda":
        devices = visible_gpus()
    at_once = pilots or resources.jobs or max(1, devices // processes)
    of_disk = disk_faults(stage.known_runs, results, at_once)
    if pilots:
        return of_disk
    parts = [stage.rows] if stage.trials is None else [stage.trials, stage.rows]
    return *memory_faults(parts, results, resources), *of_disk


def memory_faults(parts: Iterable[Runs], results: Results, resources: Resources) -> tuple[str, ...]:
    """A line if the largest row that is still to be trained does not fit into the memory of its
    device, even with the smallest micro-batches; none also if that memory is not known.
    """
    kind, processes = device_kind(resources.device), resources.processes or 1
    where = "this machine"
    available: int | None = memory()
    if kind == "cuda":
        where, available = "a GPU of this machine", gpu_memory()
    if available is None:
        return ()
    label, largest, remedy = "", 0, ""
    for runs in parts:
        for row in runs.rows:
            if all(results.run(run.id).has_result for run in runs.of(row)):
                continue
            tokens = min(SMALLEST_MICRO_BATCH, -(-row.config.batch_tokens // processes))
            V = runs.data_of(row).vocab_size
            needed = peak_memory(row.config, V, tokens, kind, processes=processes)
            if needed > largest:
                label, largest = row.label, needed
                remedy = "" if row is runs.base else ", or leave the row out with --rows"
    # The processes of a run share the memory of a CPU, and have a GPU each.
    needed = largest + CUDA_CONTEXT if kind == "cuda" else processes * largest
    if not largest or needed <= available:
        return ()
    return (
        f"memory: {label} needs {size(needed)} even with the smallest micro-batches, and {where} "
        f"has {size(available)}; make the model smaller{remedy}",
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
