"""The slots of this machine: devices, threads and memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ablate.config import RowConfig
from ablate.config.memory import CPU_MICRO_BATCH, CUDA_CONTEXT, SMALLEST_MICRO_BATCH, peak_memory
from ablate.config.training import resolve_precision
from ablate.errors import MachineError
from ablate.launch.executor import Demand, Slot
from ablate.store.jobs import Device
from ablate.store.machine import cores, library_settings, memory, visible_gpus

# Share of the memory that the estimate of a run may fill. The rest is for the system, libraries and
# allocators: on a CPU, an allocator that keeps freed memory (see `allocator`) was measured at up to
# 1.8 times the estimate.
GPU_MEMORY_SHARE = 0.7
CPU_MEMORY_SHARE = 0.4
PADDING = 2  # upper bound of padded tokens / real tokens of a batch
BF16_CAPABILITY = 8  # major compute capability of the first GPUs with bf16


def local_slots(demand: Demand) -> list[Slot]:
    """The slots of this machine for the runs of a study.

    With GPUs, one slot for each group of as many GPUs as a run has processes, or `jobs` slots that
    share the groups. On a CPU, one slot for each core (small models gain little from a second
    thread), or fewer if memory is short or runs are few, or `jobs` slots. The slots depend only on
    the machine and the whole study, and not on a selection or on the missing runs, because the
    number of threads changes the last digits of a run.

    Raises:
        MachineError: --device cuda, and torch finds no GPU; or there are too few GPUs.
    """
    gpus = usable_gpus(demand.resources.device)
    return _gpu_slots(gpus, demand) if gpus else _cpu_slots(demand)


def usable_gpus(device: Device) -> list[int]:
    """Bytes of memory of each GPU that runs may use; empty for the CPU.

    Raises:
        MachineError: --device cuda, and torch finds no GPU.
    """
    if device == "cpu" or (device == "auto" and not visible_gpus()):
        return []
    gpus = _gpu_memory()
    if device == "cuda" and not gpus:
        raise MachineError("--device cuda: torch finds no CUDA device; use --device cpu")
    return gpus


def gpus_for_run(processes: int | None, gpus: int, runs: int) -> int:
    """Number of GPUs of each run: `processes`, else the largest power of two with which every run
    has its GPUs at the same time.

    Args:
        processes: number of processes of each run; None to choose it here.
        gpus: number of GPUs.
        runs: number of runs of the whole study, or of a pilot's share. Finished runs count, so that
            a resumed study keeps its slots.
    """
    return processes or 1 << (max(1, gpus // max(1, runs)).bit_length() - 1)


def runs_of_pilot(runs: int, pilots: int) -> int:
    """Number of runs of each pilot's share, rounded up."""
    return -(-runs // pilots)


def gpu_groups(gpus: int, each: int) -> int:
    """Number of groups of `each` GPUs on this machine.

    Raises:
        MachineError: there are fewer GPUs than one group needs.
    """
    if each > gpus:
        raise MachineError(f"--gpus-per-run {each}: there {_are(gpus)} here")
    return gpus // each


def _gpu_slots(gpus: Sequence[int], demand: Demand) -> list[Slot]:
    n = gpus_for_run(demand.resources.processes, len(gpus), demand.runs)
    groups = gpu_groups(len(gpus), n)
    count = demand.resources.jobs or groups
    if n > 1 and count > groups:  # two processes of a run cannot share a GPU
        raise MachineError(
            f"--jobs {count} with --gpus-per-run {n} needs {count * n} GPUs, and there "
            f"{_are(len(gpus))} here"
        )
    threads, has_bf16 = _threads(count * n), _gpus_have_bf16()
    slots = []
    for i in range(count):
        first, *rest = range(i % groups * n, i % groups * n + n)
        # All processes of a run use micro-batches of one size, so the smallest GPU decides.
        smallest = min(gpus[gpu] for gpu in (first, *rest))
        memory = GPU_MEMORY_SHARE * smallest / -(-count // groups) - CUDA_CONTEXT
        peers = tuple(f"cuda:{gpu}" for gpu in rest)
        slots.append(Slot(f"{i}", f"cuda:{first}", threads, max(0.0, memory), peers, has_bf16))
    return slots


def _threads(processes: int) -> int:
    """Number of threads of each process: the user's OMP_NUM_THREADS, else an equal share of the
    cores.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if asked.isdecimal() and int(asked):
        return int(asked)
    return max(1, cores() // processes)


def _are(gpus: int) -> str:
    """`is 1 GPU` or `are 3 GPUs`."""
    return "is 1 GPU" if gpus == 1 else f"are {gpus} GPUs"


def _cpu_slots(demand: Demand) -> list[Slot]:
    n, free = demand.resources.processes or 1, CPU_MEMORY_SHARE * memory()
    largest = 0
    for c in demand.configs:
        needed = peak_memory(c, demand.vocab_size, SMALLEST_MICRO_BATCH, processes=n)
        largest = max(largest, n * needed)
    count = demand.resources.jobs or max(1, min(cores() // n, demand.runs, int(free // largest)))
    threads = _threads(count * n)
    free_memory, peers = free / (count * n), ("cpu",) * (n - 1)
    return [Slot(f"{i}", "cpu", threads, free_memory, peers) for i in range(count)]


def micro_batch(
    config: RowConfig, vocab_size: int, slot: Slot, largest_batch: int | None = None
) -> int:
    """The largest micro-batch, in padded tokens, whose estimated memory fits into a slot: the run's
    largest batch, halved as often as needed.

    Args:
        config: configuration of the run.
        vocab_size: V.
        slot: the slot.
        largest_batch: padded tokens of the run's largest batch; None for an upper bound of it.
    """
    kind, processes = slot.device.partition(":")[0], len(slot.devices)
    tokens = largest_batch or PADDING * config.batch_tokens
    if kind == "cpu":
        tokens = min(tokens, CPU_MICRO_BATCH)
    else:
        precision = resolve_precision(config.precision, "cuda", slot.has_bf16)
        config = config.model_copy(update={"precision": precision})
    while tokens > SMALLEST_MICRO_BATCH:
        if peak_memory(config, vocab_size, tokens, kind, processes=processes) <= slot.memory:
            break
        tokens = -(-tokens // 2)
    return tokens


def worker_environment(threads: int, devices: Sequence[str] = ("cpu",)) -> dict[str, str]:
    """The environment of a worker: idle threads that soon sleep, an allocator that keeps freed
    memory, one cache of compiled kernels, and only the worker's own GPUs, so that it takes no
    memory of another GPU.

    By default, glibc returns every large activation to the system, and the next step has to fault
    its pages in again. An allocator that keeps them was measured to more than double the speed of
    training; huge pages add some 4 % (benchmarks/LOG.md).
    """
    return {
        **library_settings(),
        **_compiler(devices),
        **os.environ,
        **_visible_gpus(devices),
        **allocator(),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONUNBUFFERED": "1",
    }


def _compiler(devices: Sequence[str]) -> dict[str, str]:
    """The variables of torch's compiler for a worker with GPUs.

    One process compiles the few kernels; by default, each worker would start up to 16. All workers
    of the user share one cache, on a cluster also all nodes with this home folder. The cache is not
    in the results root, because torch executes its files.
    """
    if all(device == "cpu" for device in devices):
        return {}
    settings = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    with suppress(RuntimeError):  # no home folder: torch's default, a temporary folder
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        existing = next(path for path in (cache, *cache.parents) if path.exists())
        if cache.is_absolute() and os.access(existing, os.W_OK):
            settings["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "ablate" / "compiled")
    return settings


def _visible_gpus(devices: Sequence[str]) -> dict[str, str]:
    """CUDA_VISIBLE_DEVICES of a worker. The index of a device counts the GPUs that this process
    sees.
    """
    names = [device.removeprefix("cuda:") for device in devices if device.startswith("cuda:")]
    if not names:
        return {}
    of_launcher = os.environ.get("CUDA_VISIBLE_DEVICES")
    # The launcher's own variable may leave out GPUs, or have UUIDs: the index counts its entries.
    if of_launcher is not None:
        entries = of_launcher.split(",")
        names = [entries[int(index)].strip() for index in names]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names)}


def allocator() -> dict[str, str]:
    """Environment variables of a worker's allocator. The user's GLIBC_TUNABLES take precedence."""
    # glibc takes the last of equal names, which is the user's.
    tunables = ["glibc.malloc.hugetlb=1", os.environ.get("GLIBC_TUNABLES")]
    return {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 36),  # glibc ignores values that are much larger
        "MALLOC_TOP_PAD_": str(256 << 20),
        "GLIBC_TUNABLES": ":".join(filter(None, tunables)),
    }


def _gpu_memory() -> list[int]:
    """Memory of each GPU that torch sees, in bytes."""
    import torch

    gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [gpu.total_memory for gpu in gpus]


def _gpus_have_bf16() -> bool:
    """Whether every GPU that torch sees has bf16: compute capability 8 and later."""
    import torch

    gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return all(gpu.major >= BF16_CAPABILITY for gpu in gpus)
