"""Execution settings of a run, and its provenance: code, versions and machine.

A run keeps its first execution settings, because threads, micro-batches and precision change the
last digits of sums, and micro-batches also the masks of dropout. The provenance contains no names
of persons, hosts or paths.
"""

from __future__ import annotations

import logging
import os
import platform
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

import ablate
from ablate.config import RowConfig
from ablate.config.training import precision_note
from ablate.errors import Damaged, StoreError
from ablate.kernels.device import has_bf16, precision_on, visible_device
from ablate.own.reference import parse_import
from ablate.parts.variant import classes_of
from ablate.store import RunFolder, checkpoints
from ablate.store.files import quarantine
from ablate.store.machine import machine, output_of
from ablate.store.records import PACKAGES, CodeVersion, Execution, Provenance
from ablate.workers.job import Job


class OtherDevice(StoreError):  # noqa: N818
    """The run began on another type of device. Its files are unchanged."""


def choose_execution(
    folder: RunFolder, job: Job, config: RowConfig, training: str, log: logging.Logger
) -> Execution:
    """The execution settings of a run: those that it began with, or new ones from the job.

    `micro_batch_tokens` of the row takes precedence. Each change is logged.

    Args:
        folder: folder of the run.
        job: the job.
        config: the row.
        training: hash of the training and dev text.
        log: receives the changes.

    Raises:
        OtherDevice: the run began on another type of device, whose random state cannot be used.
        StoreError: the run began on other data.
    """
    device_type = _device_type(job)
    execution = _read_execution(folder, log)
    if execution is None:
        return _new_execution(folder, job, config, training, log)
    folder.refuse_other_text(execution, training)
    # A finished run is only decoded, which needs no random state.
    if execution.device != device_type and not folder.has_result:
        raise OtherDevice(
            f"{folder.path}: began on {execution.device}, and its random state cannot be used on "
            f"{device_type}; use --device {execution.device}, or another --results"
        )
    if config.deterministic != execution.deterministic and not folder.has_result:
        log.warning("the run goes on with deterministic=%s, as it began", execution.deterministic)
    # The study sets another size, which replaces the first one and its halvings.
    if config.micro_batch_tokens not in (None, execution.micro_batch_tokens):
        execution = execution.model_copy(
            update={"micro_batch_tokens": config.micro_batch_tokens, "halvings": 0}
        )
        execution.write(folder.execution)
    # The system killed the last worker for its memory, before it could halve the micro-batch.
    if job.halve_micro_batch:
        execution = execution.halved()
        execution.write(folder.execution)
        log.warning(
            "the system ran out of memory: micro-batches of %d tokens from here",
            execution.fitting_tokens,
        )
    return execution


def _device_type(job: Job) -> str:
    """`cpu` or `cuda`, without an index, because a run may resume on any GPU."""
    return job.device.partition(":")[0]


def _new_execution(
    folder: RunFolder, job: Job, config: RowConfig, training: str, log: logging.Logger
) -> Execution:
    """Choose the execution settings of a new run, and write them with the provenance."""
    device = visible_device(job.device, job.devices)
    precision = precision_on(device, config.precision)
    execution = Execution(
        training=training,
        device=_device_type(job),
        threads=job.threads,
        micro_batch_tokens=config.micro_batch_tokens or job.micro_batch_tokens,
        halvings=int(job.halve_micro_batch),
        precision=precision,
        deterministic=config.deterministic,
        parts=len(job.devices),
    )
    execution.write(folder.execution)
    record = provenance(str(device), job.threads, precision, len(job.devices))
    packages = {**record.packages, **custom_packages(config)}
    record.model_copy(update={"packages": packages}).write(folder.provenance)
    log.info("matrix products in %s on %s", precision, device_name(str(device)))
    note = precision_note(config.precision, execution.device, has_bf16(device))
    if note is not None:
        log.warning(note)
    return execution


def _read_execution(folder: RunFolder, log: logging.Logger) -> Execution | None:
    """Read the execution settings of a run; without them, remove its checkpoints, so that it starts
    over.
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
        checkpoints.prune(folder.checkpoints, set(), finished=True)
    # After the checkpoints: a kill in between must not leave checkpoints without these settings.
    if execution is None and os.path.lexists(folder.execution):
        quarantine(folder.execution)
    return execution


def provenance(device: str, threads: int, precision: str, processes: int = 1) -> Provenance:
    """The provenance of a run that this process would execute."""
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
    """Versions of the installed packages with the user's classes of a row, by name."""
    modules = [reference.module for reference in classes_of(config)]
    if imported := parse_import(config.optimizer):
        modules.append(imported.module)
    if not modules:  # saves a search through all packages
        return {}
    installed = packages_distributions()
    versions = dict[str, str | None]()
    for module in modules:
        for name in installed.get(module.partition(".")[0], ()):
            versions[name.lower()] = _version(name)
    return versions


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
    head = output_of(["git", "rev-parse", "HEAD"], folder)
    status = output_of(["git", "status", "--porcelain", "--", "."], folder) if head else None
    return CodeVersion(
        version=ablate.__version__,
        revision=head.strip() if head else None,
        dirty=None if status is None else bool(status.strip()),
    )
