"""The slots of this machine: devices, threads and memory."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ablate.config import RowConfig
from ablate.config.memory import CPU_MICRO_BATCH, CUDA_CONTEXT, SMALLEST_MICRO_BATCH, peak_memory
from ablate.config.training import resolve_precision
from ablate.errors import Fault, MachineError, Mark
from ablate.launch.executor import Demand, Slot
from ablate.store.machine import Device, cores, library_settings, memory, visible_gpus

# Share of the memory that estimates may fill. The rest is for the system, libraries and allocators:
# on a CPU, a process whose allocator keeps freed memory (see `allocator`) was measured to use up to
# 1.8 times the estimate.
GPU_MEMORY_SHARE = 0.7
CPU_MEMORY_SHARE = 0.4
# Upper bound of the ratio of padded tokens to real tokens in a batch.
PADDING = 2
BF16_CAPABILITY = 8  # major compute capability of the first GPUs with bf16


def local_slots(demand: Demand) -> list[Slot]:
    """Divide this machine into slots for the runs of a study.

    With GPUs, there is a slot for each GPU, or for each group of GPUs if several processes train a
    run together. On a CPU, there is a slot for each core, because small models gain little from a
    second thread; there are fewer if memory is short or runs are few. `jobs` replaces the number of
    slots.

    The slots depend only on the machine and the whole study, not on a selection of rows or on the
    missing runs, because the number of threads changes the last digits of a run.

    Raises:
        MachineError: there are too few GPUs, or none with --device cuda.
    """
    gpus = usable_gpus(demand.resources.device)
    return _gpu_slots(gpus, demand) if gpus else _cpu_slots(demand)


def usable_gpus(device: Device) -> list[int]:
    """Bytes of memory of each GPU that runs may use; empty if they use the CPU.

    Raises:
        MachineError: --device cuda, and torch finds no GPU.
    """
    if device == "cpu" or (device == "auto" and not visible_gpus()):
        return []
    gpus = _gpu_memory()
    if device == "cuda" and not gpus:
        fault = Fault("torch finds no CUDA device", remedy="use --device cpu")
        raise MachineError(fault.located(Mark("--device cuda")))
    return gpus


def gpus_for_run(processes: int | None, gpus: int, runs: int) -> int:
    """Number of GPUs that train each run together.

    Args:
        processes: the number that the user has set. None for the largest power of two with which no
            run has to wait for a GPU.
        gpus: number of GPUs.
        runs: number of runs of the whole study, or of a pilot's share. Finished runs count too, so
            that a resumed study keeps its slots.
    """
    if processes:
        return processes
    gpus_per_run = max(1, gpus // max(1, runs))
    return 1 << (gpus_per_run.bit_length() - 1)  # rounded down to a power of two


def runs_of_pilot(runs: int, pilots: int) -> int:
    """Number of runs in a pilot's share, rounded up."""
    return math.ceil(runs / pilots)


def gpu_groups(gpus: int, group_size: int) -> int:
    """Number of groups of GPUs on this machine.

    Raises:
        MachineError: there are fewer GPUs than one group needs.
    """
    if group_size > gpus:
        raise MachineError(f"--gpus-per-run {group_size}: there {_are(gpus)} here")
    return gpus // group_size


def _gpu_slots(gpus: Sequence[int], demand: Demand) -> list[Slot]:
    n = gpus_for_run(demand.resources.processes, len(gpus), demand.runs)
    groups = gpu_groups(len(gpus), n)
    count = demand.resources.jobs or groups
    if n > 1 and count > groups:  # two processes of a run cannot share a GPU
        raise MachineError(
            f"--jobs {count} with --gpus-per-run {n} needs {count * n} GPUs, and there "
            f"{_are(len(gpus))} here"
        )
    threads = _threads(count * n)
    has_bf16 = _gpus_have_bf16()
    slots_per_group = math.ceil(count / groups)
    slots = []
    for i in range(count):
        begin = i % groups * n
        group = range(begin, begin + n)
        # All processes of a run use micro-batches of the same size, so the smallest GPU decides.
        smallest = min(gpus[gpu] for gpu in group)
        memory = GPU_MEMORY_SHARE * smallest / slots_per_group - CUDA_CONTEXT
        devices = tuple(f"cuda:{gpu}" for gpu in group)
        slots.append(Slot(f"{i}", devices, threads, max(0.0, memory), has_bf16))
    return slots


def _threads(processes: int) -> int:
    """Number of threads of each process: the user's OMP_NUM_THREADS, else an equal share of the
    cores.
    """
    # OMP_NUM_THREADS may be a list, with a number for each level of nested parallel regions.
    number = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if number.isdecimal() and int(number):
        return int(number)
    return max(1, cores() // processes)


def _are(gpus: int) -> str:
    return "is 1 GPU" if gpus == 1 else f"are {gpus} GPUs"


def _cpu_slots(demand: Demand) -> list[Slot]:
    n = demand.resources.processes or 1
    available = CPU_MEMORY_SHARE * memory()
    largest = 0  # bytes of the largest run
    for config in demand.configs:
        needed = peak_memory(config, demand.vocab_size, SMALLEST_MICRO_BATCH, processes=n)
        largest = max(largest, n * needed)
    count = demand.resources.jobs
    if not count:
        count = max(1, min(cores() // n, demand.runs, int(available // largest)))
    threads = _threads(count * n)
    process_memory = available / (count * n)
    devices = ("cpu",) * n
    return [Slot(f"{i}", devices, threads, process_memory) for i in range(count)]


def micro_batch(
    config: RowConfig, vocab_size: int, slot: Slot, largest_batch: int | None = None
) -> int:
    """Size of the largest micro-batch that is estimated to fit into a slot's memory, in padded
    tokens: the run's largest batch, halved as often as necessary.

    Args:
        config: the row.
        vocab_size: size of the vocabulary.
        slot: the slot.
        largest_batch: padded tokens of the run's largest batch; None for an upper bound.
    """
    processes = len(slot.devices)
    tokens = largest_batch or PADDING * config.batch_tokens
    if slot.kind == "cpu":
        tokens = min(tokens, CPU_MICRO_BATCH)
    else:
        precision = resolve_precision(config.precision, "cuda", slot.has_bf16)
        config = config.model_copy(update={"precision": precision})
    while tokens > SMALLEST_MICRO_BATCH:
        if peak_memory(config, vocab_size, tokens, slot.kind, processes=processes) <= slot.memory:
            break
        tokens = math.ceil(tokens / 2)
    return tokens


def worker_environment(threads: int, devices: Sequence[str] = ("cpu",)) -> dict[str, str]:
    """The environment variables of a worker: threads that soon sleep when idle, an allocator that
    keeps freed memory, one cache of compiled kernels, and only the GPUs of its slot, so that it
    takes no memory on other GPUs.

    By default, glibc returns the memory of every large activation to the system, and gets it back
    page by page in the next step. Keeping the memory was measured to more than double the speed of
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

    A single process compiles the few kernels; by default, each worker would start up to 16
    processes. The cache of compiled kernels is in the user's cache folder, which all workers share,
    on a cluster the workers of all nodes with this home folder. It is not in the results root,
    because torch executes its files.
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
    """CUDA_VISIBLE_DEVICES for a worker on these devices, which are numbered as this process sees
    them.
    """
    names = [device.removeprefix("cuda:") for device in devices if device.startswith("cuda:")]
    if not names:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    # If this process sees only some GPUs, the number of a device is an index into its list, whose
    # entries may be other numbers or UUIDs.
    if visible is not None:
        entries = visible.split(",")
        names = [entries[int(index)].strip() for index in names]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names)}


def allocator() -> dict[str, str]:
    """The variables of a worker's allocator. The user's GLIBC_TUNABLES take precedence."""
    # If a name occurs twice, glibc uses the last value, which is the user's.
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
    """Whether every GPU that torch sees multiplies in bf16: compute capability 8 and later."""
    import torch

    gpus = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return all(gpu.major >= BF16_CAPABILITY for gpu in gpus)
