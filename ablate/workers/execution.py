"""Numeric settings of a run (`Execution`), and its provenance: code, versions and machine.

A run keeps its first numeric settings: threads, micro-batches and precision change the last digits
of sums, and micro-batches also change the masks of dropout. The provenance contains no names of
persons, hosts or paths.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

import ablate
from ablate.config import RowConfig
from ablate.config.training import precision_note
from ablate.errors import Damaged, StoreError
from ablate.kernels.device import has_bf16, precision_on, visible_device
from ablate.parts.variant import named_classes
from ablate.store import RunFolder, checkpoints, none_if_unreadable
from ablate.store.files import quarantine
from ablate.store.machine import machine, output_of
from ablate.store.records import PACKAGES, CodeVersion, Execution, Provenance
from ablate.workers.assignment import Assignment


class OtherDevice(StoreError):  # noqa: N818
    """The run began on another type of device. Its files are unchanged."""


def choose_execution(
    folder: RunFolder,
    assignment: Assignment,
    config: RowConfig,
    training_hash: str,
    log: logging.Logger,
) -> Execution:
    """Choose the numeric settings of a run: the settings with which it began, or else new ones.

    `micro_batch_tokens` of the row takes precedence over the assignment. Each change is logged.

    Raises:
        OtherDevice: the run began on another type of device, and its random state cannot be used
            here.
        StoreError: the run began with other training or dev text.
    """
    device_type = _device_type(assignment)
    execution = _read_execution(folder, log)
    if execution is None:
        return _new_execution(folder, assignment, config, training_hash, log)
    folder.refuse_other_text(execution, training_hash)
    # The random state does not matter to a finished run, which is only decoded.
    if execution.device != device_type and not folder.has_result:
        raise OtherDevice(
            f"{folder.path}: began on {execution.device}, and its random state cannot be used on "
            f"{device_type}; use --device {execution.device}, or another --results"
        )
    if not folder.has_result:
        _add_provenance(folder, assignment, config, execution)
        if config.deterministic != execution.deterministic:
            log.warning(
                "the run began with deterministic=%s, and keeps it", execution.deterministic
            )
    # A size in the study replaces the size with which the run began, and its halvings.
    if config.micro_batch_tokens not in (None, execution.micro_batch_tokens):
        execution = execution.model_copy(
            update={"micro_batch_tokens": config.micro_batch_tokens, "halvings": 0}
        )
        execution.write(folder.execution)
    # The last worker could not halve its micro-batch, because the system killed it for its memory.
    if assignment.halve_micro_batch:
        execution = execution.halved()
        execution.write(folder.execution)
        log.warning(
            "the system ran out of memory: micro-batches of %d tokens from here",
            execution.current_micro_batch_tokens,
        )
    return execution


def _device_type(assignment: Assignment) -> str:
    """`cpu` or `cuda`, without an index, because a run may resume on any GPU."""
    return assignment.device.partition(":")[0]


def _new_execution(
    folder: RunFolder,
    assignment: Assignment,
    config: RowConfig,
    training_hash: str,
    log: logging.Logger,
) -> Execution:
    """Choose the numeric settings of a new run, and write them after the provenance."""
    device = visible_device(assignment.devices)
    precision = precision_on(device, config.precision)
    execution = Execution(
        training_hash=training_hash,
        device=_device_type(assignment),
        threads=assignment.threads,
        micro_batch_tokens=config.micro_batch_tokens or assignment.micro_batch_tokens,
        halvings=int(assignment.halve_micro_batch),
        precision=precision,
        deterministic=config.deterministic,
        parts=len(assignment.devices),
    )
    _provenance_of(assignment, config, execution).write(folder.provenance)
    execution.write(folder.execution)
    log.info("matrix products in %s on %s", precision, device_name(str(device)))
    note = precision_note(config.precision, execution.device, has_bf16(device))
    if note is not None:
        log.warning(note)
    return execution


def _add_provenance(
    folder: RunFolder, assignment: Assignment, config: RowConfig, execution: Execution
) -> None:
    """Add the provenance of this process to that of a resumed run, if they differ."""
    here = _provenance_of(assignment, config, execution)
    first = none_if_unreadable(folder.read_provenance)
    if first is None:
        return
    if all(here != part.model_copy(update={"later": ()}) for part in first.all_parts):
        first.model_copy(update={"later": (*first.later, here)}).write(folder.provenance)


def _provenance_of(assignment: Assignment, config: RowConfig, execution: Execution) -> Provenance:
    """The provenance of this process for a run with these numeric settings."""
    device = visible_device(assignment.devices)
    processes = min(len(assignment.devices), execution.parts)
    record = provenance(str(device), execution.threads, execution.precision, processes)
    return record.model_copy(update={"packages": {**record.packages, **custom_packages(config)}})


def _read_execution(folder: RunFolder, log: logging.Logger) -> Execution | None:
    """Read the numeric settings of a run. If they are damaged or lost, remove the checkpoints, so
    that the run starts over with new settings.
    """
    fault = None
    try:
        execution = folder.read_execution()
    except Damaged as error:
        execution = None
        fault = str(error)
    if execution is None and fault is None and any(folder.checkpoints.glob("*.json")):
        fault = f"{folder.execution}: is missing"
    if fault is not None and not folder.has_result:
        log.warning("%s; the run starts over", fault)
        checkpoints.remove_all(folder.checkpoints)
    # Only after the checkpoints: a kill in between must not leave checkpoints without settings.
    if execution is None and os.path.lexists(folder.execution):
        quarantine(folder.execution)
    return execution


def provenance(device: str, threads: int, precision: str, processes: int = 1) -> Provenance:
    """Describe the code, the versions and the machine of this process, and how many processes train
    the run together.
    """
    return Provenance(
        ablate=_code_version(),
        python=platform.python_version(),
        packages={name: _version(name) for name in PACKAGES},
        machine=machine(),
        device=device_name(device),
        threads=threads,
        precision=precision,
        processes=processes,
    )


def custom_packages(config: RowConfig) -> dict[str, str | None]:
    """Versions of the installed packages that define the user's classes of a row, by name."""
    modules = [cls.module for cls in named_classes(config)]
    if not modules:  # saves the search through all installed packages
        return {}
    installed = packages_distributions()
    versions = dict[str, str | None]()
    for module in modules:
        for name in installed.get(module.partition(".")[0], ()):
            versions[name.lower()] = _version(name)
    return versions


def device_name(device: str) -> str:
    """Name of a device for people: the model of a GPU, or `cpu`."""
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
    """The version of ablate, with its git revision if it runs from a checkout."""
    folder = Path(ablate.__file__).parent
    head = output_of(["git", "rev-parse", "HEAD"], folder)
    changed = _changed_files(folder) if head else None
    return CodeVersion(
        version=ablate.__version__,
        revision=head.strip() if head else None,
        dirty=None if changed is None else bool(changed),
        changes=_hash_of_files(changed) if changed else None,
    )


def _changed_files(folder: Path) -> dict[str, Path] | None:
    """The files of a folder that differ from the revision, new and deleted ones included, by their
    paths in the checkout; None if git does not list them.
    """
    top = output_of(["git", "rev-parse", "--show-toplevel"], folder)
    options = ("--porcelain", "-z", "--untracked-files=all", "--no-renames")
    status = output_of(["git", "status", *options, "--", "."], folder)
    if top is None or status is None:
        return None
    names = [entry[3:] for entry in status.split("\0") if entry]  # after two letters and a space
    return {name: Path(top.rstrip("\n"), name) for name in names}


def _hash_of_files(files: Mapping[str, Path]) -> str:
    """The first 12 digits of the SHA-256 of the names and contents of files. It does not depend on
    the user's settings of git, as the text of `git diff` does.
    """
    contents = []
    for name, path in sorted(files.items()):
        try:
            contents.append((name, hashlib.sha256(path.read_bytes()).hexdigest()))
        except OSError:  # deleted
            contents.append((name, ""))
    return hashlib.sha256(repr(contents).encode()).hexdigest()[:12]
