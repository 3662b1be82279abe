"""What NVIDIA's programs say: the memory of GPUs, and whether MPS lets kernels of several processes
run side by side.

MPS is NVIDIA's Multi-Process Service: without it, a GPU switches between its processes, and runs
kernels of one of them at a time. Its control daemon is the user's: it is asked whether it runs, and
is neither started nor stopped here. Processes connect to it by themselves.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MPS_CONTROL = "nvidia-cuda-mps-control"
ANSWER_SECONDS = 10.0


@dataclass(frozen=True)
class FreeGPU:
    """A GPU as nvidia-smi reports it.

    name: of the product.
    total, free: bytes of memory.
    """

    name: str
    total: int
    free: int


def free_gpus() -> list[FreeGPU]:
    """The GPUs that this process may use, by nvidia-smi; none if it does not answer.

    torch is not asked, because a process that asks CUDA for free memory takes some of it.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    which = () if visible is None else ("-i", visible)
    query = ("--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits")
    lines = (_output(("nvidia-smi", *which, *query)) or "").splitlines()
    fields = [line.rsplit(",", 2) for line in lines if line.count(",") >= 2]
    if not all(total.strip().isdecimal() and free.strip().isdecimal() for _, total, free in fields):
        return []
    return [
        FreeGPU(name.strip(), int(total) << 20, int(free) << 20) for name, total, free in fields
    ]


def mps() -> Literal["running", "installed"] | None:
    """Whether the control daemon of MPS runs, or could be started by the user; None if it is not
    installed.
    """
    if shutil.which(MPS_CONTROL) is None:
        return None
    # It answers with the servers, which may be none, and fails if no daemon listens. It starts
    # nothing.
    return "running" if _output((MPS_CONTROL,), "get_server_list\n") is not None else "installed"


def mps_text() -> str:
    """One sentence about MPS for people."""
    return {
        "running": "MPS is running: kernels of several runs share a GPU at the same time.",
        "installed": "MPS is not running: kernels of several runs take turns; "
        f"`{MPS_CONTROL} -d` starts it.",
        None: "MPS is not installed: kernels of several runs take turns on a GPU.",
    }[mps()]


def _output(command: Sequence[str], given: str = "") -> str | None:
    """The standard output of a program; None if it does not start, fails, or takes too long."""
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
