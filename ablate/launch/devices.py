"""What this machine offers: places to work in, each with a device, threads and memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ablate.config import RowConfig
from ablate.config.cost import peak_memory
from ablate.errors import UsageError
from ablate.store.machine import cores

Device = Literal["auto", "cpu", "cuda"]

# What of the memory estimates may add up to: the rest is the system's, the libraries' and the allocators'. On a CPU
# an allocator that keeps what it has (see worker_environment) was measured at up to 1.8 times the estimate.
GPU_MEMORY_SHARE = 0.7
CPU_MEMORY_SHARE = 0.4
# On a CPU larger parts are no faster, they only take more memory.
CPU_MICRO_BATCH = 8192
PADDED = 2  # a batch of batch_tokens real tokens has fewer padded ones than this many times that
SMALLEST_MICRO_BATCH = 256


@dataclass(frozen=True)
class Place:
    """Where one worker works: `cpu` or `cuda:1`, its share of the cores, and of the memory in bytes."""

    device: str
    threads: int
    memory: float


def places(device: Device, jobs: int | None, configs: Sequence[RowConfig], vocab_size: int, runs: int) -> list[Place]:
    """The places for a study's runs.

    On GPUs, one worker each, or `jobs` workers shared out over them. On a CPU, one worker a core
    (small models gain little from a second thread), fewer where memory is short or runs are few, or
    `jobs`. It depends on the machine and on `runs`, the size of the whole study, and not on what is
    picked or left to do, because the number of threads changes the last digits of a run.

    Raises:
        UsageError: a GPU was asked for and there is none.
    """
    gpus = _gpu_memory() if device == "cuda" or (device == "auto" and _has_driver()) else []
    if device == "cuda" and not gpus:
        raise UsageError("--device cuda: torch finds no CUDA device; use --device cpu")
    if gpus:
        count = jobs or len(gpus)
        shared = -(-count // len(gpus))
        return [
            Place(f"cuda:{i % len(gpus)}", max(1, cores() // count), GPU_MEMORY_SHARE * gpus[i % len(gpus)] / shared)
            for i in range(count)
        ]
    memory = CPU_MEMORY_SHARE * _memory()
    largest = max(peak_memory(c, vocab_size, SMALLEST_MICRO_BATCH) for c in configs)
    count = jobs or max(1, min(cores(), runs, int(memory // largest)))
    return [Place("cpu", max(1, cores() // count), memory / count)] * count


def micro_batch(config: RowConfig, vocab_size: int, place: Place) -> int:
    """The largest micro-batch, in padded tokens, that is estimated to fit: a whole batch, halved as often as needed."""
    tokens, kind = PADDED * config.batch_tokens, place.device.partition(":")[0]
    if kind == "cpu":
        tokens = min(tokens, CPU_MICRO_BATCH)
    while tokens > SMALLEST_MICRO_BATCH and peak_memory(config, vocab_size, tokens, kind) > place.memory:
        tokens = -(-tokens // 2)
    return tokens


def worker_environment(threads: int) -> dict[str, str]:
    """The environment of a worker: its threads, and an allocator that keeps what it has.

    By default glibc gives every large activation back to the system and faults its pages in anew at
    each step; kept, training was measured at more than twice the speed, and in huge pages, where the
    system has them on request, at some 4 % more (benchmarks/LOG.md).
    """
    return {
        **os.environ,
        **allocator(),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONUNBUFFERED": "1",
    }


def allocator() -> dict[str, str]:
    """The variables of a worker's allocator, around what the user asks of it."""
    return {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 36),  # glibc ignores values that are much larger
        "MALLOC_TOP_PAD_": str(256 << 20),
        # The last of equal names counts: the user's.
        "GLIBC_TUNABLES": ":".join(filter(None, ["glibc.malloc.hugetlb=1", os.environ.get("GLIBC_TUNABLES")])),
    }


def _has_driver() -> bool:
    """Whether to ask torch for GPUs, which takes seconds to load."""
    return any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg")) or shutil.which("nvidia-smi") is not None


def _gpu_memory() -> list[int]:
    """Bytes of each GPU that torch sees."""
    import torch

    return [torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count())]


def _memory() -> int:
    """Bytes that this process may fill: the machine's, or its control group's where that is less."""
    import psutil

    total = int(psutil.virtual_memory().total)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdecimal() else total
