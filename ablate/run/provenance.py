"""What carried a run out: code, versions, machine. Nothing that names a person, a host or a path."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ablate
from ablate.store.machine import machine

PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors")


def provenance(device: str, threads: int) -> dict[str, Any]:
    """The code's version and revision, the packages' versions, the machine, the device and its threads."""
    return {
        "ablate": {"version": ablate.__version__, **_revision()},
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": machine(),
        "device": device_name(device),
        "threads": threads,
    }


def device_name(device: str) -> str:
    """`cpu`, or the GPU's name."""
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _revision() -> dict[str, Any]:
    """The git revision of this code and whether it was changed since; nulls where it is not a checkout."""
    folder = Path(ablate.__file__).parent
    head = _git(folder, "rev-parse", "HEAD")
    status = _git(folder, "status", "--porcelain", "--", ".") if head else None
    return {"revision": head, "dirty": None if status is None else bool(status)}


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
