"""The code, versions and machine behind a run. Nothing names a person, a host or a path."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import ablate
from ablate.store.machine import machine
from ablate.store.records import CodeVersion, Provenance

PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors")


def provenance(device: str, threads: int) -> Provenance:
    """Record what this process would execute a run with."""
    return Provenance(
        ablate=_code_version(),
        python=platform.python_version(),
        packages={name: _version(name) for name in PACKAGES},
        machine=machine(),
        device=device_name(device),
        threads=threads,
    )


def device_name(device: str) -> str:
    """`cpu`, or the name of the GPU."""
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _code_version() -> CodeVersion:
    """The version of ablate, and its git revision if it is a checkout."""
    folder = Path(ablate.__file__).parent
    head = _git(folder, "rev-parse", "HEAD")
    status = _git(folder, "status", "--porcelain", "--", ".") if head else None
    return CodeVersion(version=ablate.__version__, revision=head, dirty=None if status is None else bool(status))


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
