"""Whether a machine has the memory and the disk that the missing runs of a study need, before
anything is prepared.
"""

from __future__ import annotations

from ablate.config.memory import peak_memory
from ablate.errors import StoreError
from ablate.formatting import size
from ablate.launch.devices import CUDA_CONTEXT, SMALLEST_MICRO_BATCH, gpus_for_run
from ablate.launch.disk_space import check_disk_space_of
from ablate.launch.gpu_sharing import free_gpus
from ablate.launch.missing import missing_runs
from ablate.plan.plan import Plan
from ablate.store import Results
from ablate.store.machine import cores, memory, visible_gpus
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
    gpus = 0 if plan.device == "cpu" else visible_gpus()
    devices = gpus // gpus_for_run(plan.processes, gpus, len(plan.runs)) if gpus else cores()
    return (*memory_faults(plan), *disk_faults(now, results, jobs or max(1, devices)))


def memory_faults(plan: Plan) -> tuple[str, ...]:
    """A line if the largest run that is left does not fit into the memory of the plan's device,
    even with the smallest micro-batches; none also if that memory is not known.
    """
    kind, where, available = _memory_of(plan)
    together = plan.processes if kind == "cpu" else 1  # processes on this machine, or on a GPU
    needed = {}
    for id, (row, state) in plan.runs.items():
        if state in ("done", "diverged") or id in plan.trained:
            continue
        config = row.row.config.model_copy(update={"precision": plan.precision(row.row.config)})
        bytes = peak_memory(
            config,
            row.V,
            min(SMALLEST_MICRO_BATCH, config.batch_tokens),
            kind,
            parts=plan.processes,
            processes=plan.processes,
        )
        needed[row.row.label] = together * bytes + (CUDA_CONTEXT if kind == "cuda" else 0)
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
    if plan.device != "cpu" and visible_gpus():
        return (
            "cuda",
            "a GPU of this machine",
            min((gpu.total for gpu in free_gpus()), default=None),
        )
    return "cpu", "this machine", memory()


def disk_faults(study: Study, results: Results, at_once: int) -> tuple[str, ...]:
    """A line if the disk is too small for the missing runs, `at_once` of them in training."""
    missing = missing_runs(study, results, retry_failed=True)
    try:
        check_disk_space_of(study, results, missing, at_once)
    except StoreError as error:
        return error.lines
    return ()
