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
from ablate.store.machine import Resources, cores, gpu_memory, memory, visible_gpus
from ablate.study import Run, Runs


def shortages(
    stage: Stage, results: Results, resources: Resources, pilots: int | None = None
) -> list[str]:
    """A line for the memory if the largest row does not fit, and a line for the disk if the runs do
    not fit.

    Args:
        stage: the current stage of the study.
        results: results root; its disk is checked.
        resources: resources that the runs may occupy.
        pilots: number of pilots on a cluster, each of which trains one run at a time; their memory
            is checked when the profile of the cluster is read. None for this machine.
    """
    lines = []
    if pilots:
        n_parallel = pilots
    else:
        lines.append(memory_shortage(stage.known_groups, results, resources))
        n_parallel = resources.jobs or _runs_at_once(resources)
    lines.append(disk_shortage(stage.known_runs, results, n_parallel))
    return list(filter(None, lines))


def _runs_at_once(resources: Resources) -> int:
    """Number of runs that this machine trains at the same time."""
    devices = visible_gpus() if device_kind(resources.device) == "cuda" else cores()
    return max(1, devices // (resources.processes or 1))


def memory_shortage(groups: Iterable[Runs], results: Results, resources: Resources) -> str:
    """A line if the largest row that must still be trained does not fit into the memory of its
    device, even with the smallest micro-batches. Empty if it fits, or if the size of the memory is
    not known.

    Only one run must fit: `launch/devices.py` makes fewer slots if several runs do not fit.
    """
    kind = device_kind(resources.device)
    processes = resources.processes or 1
    place = "this machine"
    available: int | None = memory()
    if kind == "cuda":
        place = "a GPU of this machine"
        available = gpu_memory()
    if available is None:
        return ""
    label = ""
    largest = 0  # bytes of a process of the largest row
    remedy = ""
    for runs in groups:
        for row in runs.rows:
            if all(results.run(run.id).has_result for run in runs.of(row)):
                continue
            tokens_of_process = math.ceil(row.config.batch_tokens / processes)
            tokens = min(SMALLEST_MICRO_BATCH, tokens_of_process)
            V = runs.data_of(row).vocab_size
            needed = peak_memory(row.config, V, tokens, kind, processes=processes)
            if needed > largest:
                label = row.label
                largest = needed
                # The first base is in every selection of rows.
                remedy = "" if row is runs.base else ", or leave the row out with --rows"
    # Each process of a run has its own GPU, and all processes share the memory of a CPU.
    total = largest + CUDA_CONTEXT if kind == "cuda" else processes * largest
    if not largest or total <= available:
        return ""
    return (
        f"memory: {label} needs {size(total)} even with the smallest micro-batches, and {place} "
        f"has {size(available)}; make the model smaller{remedy}"
    )


def disk_shortage(runs: Iterable[Run], results: Results, n_parallel: int) -> str:
    """A line if the disk is too small for runs of which `n_parallel` train at the same time; empty
    if it is large enough.

    Every run leaves the weights that it averages. A run in training also holds its checkpoints. The
    files that an interrupted run has already written are subtracted from the bytes that this run
    needs.
    """
    final = 0  # bytes that the runs still have to write and that stay
    temporary: list[int] = []  # further bytes of each run while it trains
    for run in runs:
        folder = results.run(run.id)
        if folder.has_result:  # lacks only a decoding, which needs little space
            continue
        config = run.config
        V = run.data.vocab_size
        written = 0
        if is_there(folder.checkpoints):
            written = size_of(folder.checkpoints.glob("*.safetensors"))
        averaged = config.average_checkpoints * BYTES * cost.parameters(config, V)
        # The oldest checkpoint is removed only after the newest is complete.
        largest = max(averaged, cost.run_bytes(config, V, RESUMABLE + 1))
        still_averaged = max(0, averaged - written)
        final += still_averaged
        temporary.append(max(0, largest - written) - still_averaged)
    # In the worst case, the runs that need most are in training at the same time.
    needed = final + sum(heapq.nlargest(n_parallel, temporary))
    # `disk_usage` needs a folder that exists, and the results root may not exist yet.
    root = results.root
    existing = next(folder for folder in (root, *root.absolute().parents) if folder.is_dir())
    disk = shutil.disk_usage(existing)
    free = disk.free
    if needed <= free or not disk.total:  # some file systems do not know their size
        return ""
    return (
        f"{root}: the missing runs need {size(needed)}, and {size(free)} are free; make room "
        f"(`{results.command('clean', 'STUDY')}` lists removable files), use --results on another "
        "disk, or start with fewer --rows"
    )


def refuse_full_disk(runs: Iterable[Run], results: Results, n_parallel: int) -> None:
    """Refuse to start runs for which the disk is too small.

    Raises:
        MachineError: the disk is too small. The message has the needed and the free space.
    """
    if shortage := disk_shortage(runs, results, n_parallel):
        raise MachineError(shortage)
