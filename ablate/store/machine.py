"""The machine and the process that work on a run."""

from __future__ import annotations

import functools
import os
import platform
import socket
from pathlib import Path

from ablate.store.records import Machine, ProcessMark

DEVICE_FILES = Path("/dev")
CPU_INFO = Path("/proc/cpuinfo")  # Linux only

# Idle threads of OpenMP sleep rather than spin. On an older Xeon, two spinning threads lost three quarters of their
# speed beside a busy neighbour, and were slower without one, too (benchmarks/LOG.md, 2026-11-22, threads that sleep).
PASSIVE_THREADS = {"OMP_WAIT_POLICY": "passive"}
# With a workspace of fixed size, cuBLAS sums in a fixed order, which `deterministic: true` needs.
DETERMINISTIC_CUBLAS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def set_default_environment() -> None:
    """Set variables that libraries read when they are loaded; those of the user take precedence."""
    for name, value in {**PASSIVE_THREADS, **DETERMINISTIC_CUBLAS}.items():
        os.environ.setdefault(name, value)


def machine() -> Machine:
    """Describe the processor, its cores and the operating system."""
    return Machine(processor=_processor(), cores=cores(), system=f"{platform.system()} {platform.machine()}")


def cores() -> int:
    """Number of cores that this process may use."""
    # Not cpu_count() alone: taskset, Slurm and containers allow fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> int:
    """Number of GPUs that this process may use, by device files and CUDA_VISIBLE_DEVICES; torch is not loaded."""
    # The driver makes a file for each GPU, nvidia0 and so on, beside others such as nvidiactl.
    devices = sum(path.name.removeprefix("nvidia").isdecimal() for path in DEVICE_FILES.glob("nvidia*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return devices if visible is None else min(devices, sum(bool(part.strip()) for part in visible.split(",")))


@functools.cache
def processor_has_bf16() -> bool:
    """Whether the processor has instructions for bf16 products, by the operating system's list; torch is not loaded."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split() for line in lines if line.startswith(("flags", "Features"))), [])
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags)


def process_mark() -> ProcessMark:
    """Identify this process among all processes, here and on other hosts."""
    return ProcessMark(host=socket.gethostname(), pid=os.getpid(), born=start_time(os.getpid()))


def start_time(pid: int) -> float | None:
    """When a process of this host started, in seconds since the epoch; None if there is none. Ids are recycled."""
    import psutil  # only `status` and workers need it

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, ValueError):
        return None


def _processor() -> str:
    """The processor's name as the operating system gives it."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
