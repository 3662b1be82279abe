"""The machine that works on a run: its processor, cores, memory and GPUs."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ablate.store.records import Machine

DEVICE_FILES = Path("/dev")
CPU_INFO = Path("/proc/cpuinfo")  # Linux only
CGROUPS = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")
VMSTAT = Path("/proc/vmstat")
# Limits that a launcher sets for a pilot where no control group does: cores, and bytes.
CPUS_VARIABLE = "ABLATE_CPUS"
MEMORY_VARIABLE = "ABLATE_MEMORY"

LIBRARY_SETTINGS = {
    # Idle threads of OpenMP sleep rather than spin. On an older Xeon, two spinning threads lost
    # three quarters of their speed beside a busy neighbor, and were slower without one, too
    # (benchmarks/LOG.md, 2026-11-22, threads that sleep).
    "OMP_WAIT_POLICY": "passive",
    # With libgomp they spin for about 0.1 ms first, which covers the gap between two products of a
    # training step (benchmarks/LOG.md, 2026-11-23, threads that spin briefly).
    "GOMP_SPINCOUNT": "10000",
    # `deterministic: true` needs it: cuBLAS then sums in a fixed order.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # GPUs have the numbers that nvidia-smi shows. By default, CUDA puts the fastest one first.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}  # variables that libraries read when they are loaded


def library_settings() -> dict[str, str]:
    """The variables of LIBRARY_SETTINGS that the user has not set."""
    ours = {name: value for name, value in LIBRARY_SETTINGS.items() if name not in os.environ}
    if "OMP_WAIT_POLICY" in os.environ:
        # libgomp follows its spin count rather than the policy, and this policy is the user's.
        ours.pop("GOMP_SPINCOUNT", None)
    return ours


def set_default_environment() -> None:
    """Set variables that libraries read when they are loaded; those of the user take precedence."""
    os.environ.update(library_settings())


def machine() -> Machine:
    """Describe the processor, its cores and the operating system."""
    return Machine(
        processor=_processor(), cores=cores(), system=f"{platform.system()} {platform.machine()}"
    )


def cores() -> int:
    """Cores that this process may use: by its affinity, its control groups and its job."""
    # Not cpu_count() alone: taskset, Slurm and containers allow fewer cores than the machine has.
    allowed = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    return max(1, min([allowed, *_cpu_quotas(), *_limits_in("SLURM_CPUS_ON_NODE", CPUS_VARIABLE)]))


def memory() -> int:
    """Bytes of memory that this process may use: of the machine, its control groups, its job."""
    import psutil

    limits = [int(psutil.virtual_memory().total), *_limits_in(MEMORY_VARIABLE)]
    for path in _cgroup_files("memory.max", "memory", "memory.limit_in_bytes"):
        limits += [int(line) for line in _lines(path) if line.isdecimal()]
    of_node = _limits_in("SLURM_MEM_PER_NODE")
    limits += [megabytes << 20 for megabytes in of_node]
    if not of_node:
        limits += [megabytes * cores() << 20 for megabytes in _limits_in("SLURM_MEM_PER_CPU")]
    return min(limits)


def count_oom_kills() -> int | None:
    """How often the system has killed for want of memory in the control group of this process.

    None if the system does not say. Without control groups, kills on the whole machine are counted.
    """
    for path in (*_cgroup_files("memory.events", "memory", "memory.oom_control")[:1], VMSTAT):
        for line in _lines(path):
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def _lines(path: Path) -> list[str]:
    """The lines of a file of the system; none if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _limits_in(*variables: str) -> list[int]:
    """Limits in environment variables; unset, or 0 for Slurm's whole node, is none."""
    texts = [os.environ.get(variable, "") for variable in variables]
    return [int(text) for text in texts if text.isdecimal() and int(text)]


def _cpu_quotas() -> list[int]:
    """Cores by the quotas of this process's control groups, rounded up."""
    quotas = []
    for path in _cgroup_files("cpu.max", "cpu", "cpu.cfs_quota_us"):
        # Version 2 has both numbers in one line, and version 1 a file for each.
        lines = [*_lines(path), *_lines(path.with_name("cpu.cfs_period_us"))]
        numbers = [int(word) for word in " ".join(lines).split() if word.isdecimal()]
        if len(numbers) == 2 and all(numbers):
            quotas.append(-(-numbers[0] // numbers[1]))
    return quotas


def _cgroup_files(unified: str, controller: str, legacy: str) -> list[Path]:
    """A file in each control group that this process is in: its own group first, then the groups
    above it. It has one name in version 2, and another one below a controller in version 1.
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
    # In a container, a group's path may be that of the host; then only the files at the top exist.
    return [path for path in dict.fromkeys(files) if path.exists()]


def visible_gpus() -> int:
    """Number of GPUs, by device files and CUDA_VISIBLE_DEVICES; torch is not loaded."""
    # The driver makes a file for each GPU, nvidia0 and so on, beside others such as nvidiactl.
    files = DEVICE_FILES.glob("nvidia*")
    devices = sum(path.name.removeprefix("nvidia").isdecimal() for path in files)
    if not devices and (DEVICE_FILES / "dxg").exists():  # Linux in Windows has one file for all
        devices = 1
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return devices
    count = 0
    for entry in visible.split(","):
        # CUDA leaves out everything from the first entry on that is no device, such as -1.
        if entry.strip() in ("", "-1"):
            break
        count += 1
    return min(devices, count)


def gpu_memory() -> int | None:
    """Bytes of memory of the smallest GPU that this process may use, by nvidia-smi; None if it does
    not answer.

    torch is not asked, because a process that asks CUDA takes some memory itself.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    which = [] if visible is None else ["-i", visible]
    query = ["nvidia-smi", *which, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    # Some of its exit codes are warnings, with a whole output.
    lines = (output_of(query, check=False) or "").split("\n")
    return min((int(line) << 20 for line in lines if line.strip().isdecimal()), default=None)


def output_of(command: Sequence[str], folder: Path | None = None, check: bool = True) -> str | None:
    """The output of a command in a folder; None if it is missing or hangs, and with `check` also if
    it fails.
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
    """Whether the processor has bf16 products, by the system's list; torch is not loaded."""
    for line in _lines(CPU_INFO):
        if line.startswith(("flags", "Features")):
            return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(line.split())
    return False


def _processor() -> str:
    """The processor's name as the operating system gives it."""
    for line in _lines(CPU_INFO):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
