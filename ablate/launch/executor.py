"""The interface of an executor: where jobs run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ablate.config import RowConfig
from ablate.store.jobs import DEFAULT_RESOURCES, Resources
from ablate.workers.job import Job, JobEvent


@dataclass(frozen=True)
class Demand:
    """Requirements of a study, from which an executor chooses its slots.

    configs: configurations of all runs.
    vocab_size: size of the largest vocabulary.
    runs: number of runs of the whole study.
    resources: devices and processes that the runs may occupy.
    """

    configs: tuple[RowConfig, ...]
    vocab_size: int
    runs: int
    resources: Resources = DEFAULT_RESOURCES


@dataclass(frozen=True)
class Slot:
    """A place for one job.

    name: unique among the slots of an executor.
    device: such as `cpu` or `cuda:1`.
    threads: of torch, in each process.
    memory: bytes of each device for weights, optimizer state and activations.
    peers: devices of the other processes that train the same run.
    has_bf16: whether the GPUs compute products in bf16.
    """

    name: str
    device: str
    threads: int
    memory: float
    peers: tuple[str, ...] = ()
    has_bf16: bool = True

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of all processes."""
        return (self.device, *self.peers)


def devices_text(slot: Slot) -> str:
    """The devices of a slot for people: `cuda`, or `cuda (2 each)`."""
    kind, count = slot.device.partition(":")[0], len(slot.devices)
    if count == 1:
        return kind
    return f"{kind} ({count} {'GPUs' if kind == 'cuda' else 'processes'} each)"


@dataclass(frozen=True)
class Lost:
    """The end of a job without an event, because its process died.

    reason: one line for people.
    from_outside: whether a signal from another process ended it, such as SIGTERM: the run itself
        is not at fault.
    out_of_memory: whether the system ended the process for lack of memory.
    """

    run: str
    reason: str
    from_outside: bool = False
    out_of_memory: bool = False


class Executor(Protocol):
    """Runs jobs in slots. One job occupies a slot until an event or its loss is reported for it."""

    def slots(self) -> Sequence[Slot]:
        """All slots; a slot without a job is free."""

    def submit(self, job: Job, slot: Slot) -> None:
        """Start a job in a free slot."""

    def events(self, timeout: float) -> list[JobEvent | Lost]:
        """Wait up to `timeout` seconds, and return the events of submitted jobs.

        Raises:
            StoreError: jobs cannot be started at all.
        """

    def cancel(self) -> None:
        """Ask all jobs to save and leave. A second call ends them at once."""

    def close(self) -> None:
        """End all jobs that still run, and release all resources."""
