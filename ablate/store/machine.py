"""The machine that works on a run: its processor, cores, memory and GPUs.

torch is not imported here, because commands that start no training need these facts too.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ablate.store.records import Machine, Record

Device = Literal["auto", "cpu", "cuda"]

DEVICE_FILES = Path("/dev")
CPU_INFO = Path("/proc/cpuinfo")  # Linux only
CGROUPS = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")
VMSTAT = Path("/proc/vmstat")
# Limits of cores and bytes of memory, which a launcher sets for a pilot without a control group.
CPUS_VARIABLE = "ABLATE_CPUS"
MEMORY_VARIABLE = "ABLATE_MEMORY"

# Environment variables that libraries read when they are loaded.
LIBRARY_SETTINGS = {
    # Idle threads of OpenMP sleep rather than spin. On an older Xeon, two spinning threads lost
    # three quarters of their speed beside a busy neighbor, and were slower without one too
    # (benchmarks/LOG.md, 2026-11-22, threads that sleep).
    "OMP_WAIT_POLICY": "passive",
    # With libgomp, they spin for about 0.1 ms first, which covers the gap between two products of a
    # training step (benchmarks/LOG.md, 2026-11-23, threads that spin briefly).
    "GOMP_SPINCOUNT": "10000",
    # Lets cuBLAS sum in a fixed order, as `deterministic: true` requires.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # Numbers GPUs as nvidia-smi does. By default, CUDA numbers the fastest GPU first.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}


class Resources(Record):
    """The part of a machine that runs may occupy.

    device: type of the devices; `auto` uses GPUs if there are any.
    jobs: number of runs at once; None for one run per GPU, or per core on a CPU.
    processes: number of processes that train a run together, each on a device; a power of two. None
        for the largest number with which the devices still execute as many runs at once as there
        are.
    """

    device: Device = "auto"
    jobs: int | None = None
    processes: int | None = 1


DEFAULT_RESOURCES = Resources()


def library_settings() -> dict[str, str]:
    """The variables of LIBRARY_SETTINGS that the user has not set."""
    unset = {name: value for name, value in LIBRARY_SETTINGS.items() if name not in os.environ}
    if "OMP_WAIT_POLICY" in os.environ:
        # libgomp follows the spin count rather than the policy, and the user has set the policy.
        unset.pop("GOMP_SPINCOUNT", None)
    return unset


def set_default_environment() -> None:
    """Set the variables of LIBRARY_SETTINGS; values that the user has set take precedence."""
    os.environ.update(library_settings())


def machine() -> Machine:
    """Describe the processor, its cores and the operating system."""
    return Machine(
        processor=_processor(), cores=cores(), system=f"{platform.system()} {platform.machine()}"
    )


def cores() -> int:
    """Number of cores that this process may use: the smallest limit of its CPU affinity, its
    control groups and its Slurm job.
    """
    # Not only cpu_count(): taskset, Slurm and containers allow fewer cores than the machine has.
    allowed = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    job_limits = _environment_limits("SLURM_CPUS_ON_NODE", CPUS_VARIABLE)
    return max(1, min([allowed, *_cpu_quotas(), *job_limits]))


def memory() -> int:
    """Bytes of memory that this process may use: the smallest limit of the machine, its control
    groups and its Slurm job.
    """
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [installed, *_environment_limits(MEMORY_VARIABLE)]
    for path in _cgroup_files("memory.max", "memory", "memory.limit_in_bytes"):
        limits += [int(line) for line in _lines(path) if line.isdecimal()]
    # Slurm sets one of two variables, in MiB.
    node_limits = _environment_limits("SLURM_MEM_PER_NODE")
    if not node_limits:
        node_limits = [limit * cores() for limit in _environment_limits("SLURM_MEM_PER_CPU")]
    limits += [mebibytes << 20 for mebibytes in node_limits]
    return min(limits)


def count_oom_kills() -> int | None:
    """Number of processes in the control group of this process that the system has killed for lack
    of memory; None if the system does not tell it.

    Without control groups, the kills on the whole machine are counted.
    """
    for path in (*_cgroup_files("memory.events", "memory", "memory.oom_control")[:1], VMSTAT):
        for line in _lines(path):
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def _lines(path: Path) -> list[str]:
    """The lines of a file of the system; empty if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _environment_limits(*variables: str) -> list[int]:
    """The limits that environment variables set. An unset variable is no limit, and neither is 0,
    with which Slurm grants the whole node.
    """
    texts = [os.environ.get(variable, "") for variable in variables]
    return [int(text) for text in texts if text.isdecimal() and int(text)]


def _cpu_quotas() -> list[int]:
    """Numbers of cores that the CPU quotas of this process's control groups allow, rounded up."""
    quotas = []
    for path in _cgroup_files("cpu.max", "cpu", "cpu.cfs_quota_us"):
        # Version 2 has quota and period in one line, version 1 has a file for each.
        lines = [*_lines(path), *_lines(path.with_name("cpu.cfs_period_us"))]
        numbers = [int(word) for word in " ".join(lines).split() if word.isdecimal()]
        if len(numbers) == 2 and all(numbers):
            quota, period = numbers
            quotas.append(math.ceil(quota / period))
    return quotas


def _cgroup_files(unified: str, controller: str, legacy: str) -> list[Path]:
    """Find a file in each control group of this process: first its own group, then the groups
    above.

    Args:
        unified: name of the file in version 2 of control groups.
        controller: controller that has the file in version 1.
        legacy: name of the file in version 1.
    """
    files: list[Path] = []
    for line in _lines(PROCESS_CGROUPS):
        number, controllers, group = line.split(":", 2)
        if number == "0":
            root = CGROUPS
            name = unified
        elif controller in controllers.split(","):
            root = CGROUPS / controllers
            name = legacy
        else:
            continue
        inside = Path(group.lstrip("/"))
        files += [root / folder / name for folder in (inside, *inside.parents)]
    # In a container, the path of a group may be its path on the host. Then only the files at the
    # top exist.
    return [path for path in dict.fromkeys(files) if path.exists()]


def visible_gpus() -> int:
    """Number of GPUs, by device files and CUDA_VISIBLE_DEVICES."""
    # The driver makes a file for each GPU (nvidia0, nvidia1), and further files such as nvidiactl.
    files = DEVICE_FILES.glob("nvidia*")
    devices = sum(path.name.removeprefix("nvidia").isdecimal() for path in files)
    if not devices and (DEVICE_FILES / "dxg").exists():  # WSL has one file for all GPUs
        devices = 1
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return devices
    count = 0
    for entry in visible.split(","):
        # CUDA ignores everything from the first entry on that is not a device, such as -1.
        if entry.strip() in ("", "-1"):
            break
        count += 1
    return min(devices, count)


def gpu_memory() -> int | None:
    """Bytes of memory of the smallest GPU that this process may use, as told by nvidia-smi; None if
    nvidia-smi does not answer.

    Not by CUDA, which would itself take memory of the GPU for this process.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    which = [] if visible is None else ["-i", visible]
    query = ["nvidia-smi", *which, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    # Without `check`: some exit codes of nvidia-smi are warnings, and its output is complete.
    lines = (output_of(query, check=False) or "").split("\n")
    return min((int(line) << 20 for line in lines if line.strip().isdecimal()), default=None)


def output_of(command: Sequence[str], folder: Path | None = None, check: bool = True) -> str | None:
    """Run a command in a folder, and return its output; None if the command is missing or hangs,
    and with `check` also if it fails.
    """
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=10, check=check
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


@functools.cache
def processor_has_bf16() -> bool:
    """Whether the processor multiplies in bf16, by the operating system's list of its features."""
    for line in _lines(CPU_INFO):
        if line.startswith(("flags", "Features")):
            return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(line.split())
    return False


def _processor() -> str:
    """Name of the processor, as the operating system gives it."""
    for line in _lines(CPU_INFO):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
