"""The machine, as results describe it: nothing that names a host, a person or a path."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

DEVICE_FILES = Path("/dev")


def machine() -> dict[str, Any]:
    """The processor, its cores and the system."""
    return {"processor": _processor(), "cores": cores(), "system": f"{platform.system()} {platform.machine()}"}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus_in_sight() -> int:
    """How many GPUs there are to work on, as far as that can be told without loading torch."""
    found = sum(path.name.removeprefix("nvidia").isdecimal() for path in DEVICE_FILES.glob("nvidia*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return found if visible is None else min(found, sum(bool(part.strip()) for part in visible.split(",")))


def _processor() -> str:
    """The processor's name as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
