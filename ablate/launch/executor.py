"""The interface of an executor: where jobs run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ablate.config import RowConfig
from ablate.run.job import Job, JobEvent

Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Demand:
    """What a study needs of an executor, from which the executor chooses its slots.

    configs: of all runs.
    vocab_size: of the largest vocabulary.
    runs: number of runs of the whole study.
    device: `auto` uses GPUs if there are any.
    jobs: number of slots; None for the executor's default.
    """

    configs: tuple[RowConfig, ...]
    vocab_size: int
    runs: int
    device: Device = "auto"
    jobs: int | None = None


@dataclass(frozen=True)
class Slot:
    """A place for one job.

    name: unique among the slots of an executor.
    device: such as `cpu` or `cuda:1`.
    threads: of torch.
    memory: for weights, optimizer state and activations, in bytes.
    """

    name: str
    device: str
    threads: int
    memory: float


@dataclass(frozen=True)
class Lost:
    """The end of a job without an event, because its process died.

    reason: one line for people.
    from_outside: a signal ended the process, so nothing suggests that the job would fail again.
    out_of_memory: the system ended the process for want of memory.
    """

    run: str
    reason: str
    from_outside: bool = False
    out_of_memory: bool = False


class Executor(Protocol):
    """Runs jobs in slots. One job occupies a slot until an event or its loss is reported for it."""

    def slots(self) -> Sequence[Slot]:
        """All slots; the free ones are those without a job."""

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
        """Release all resources; jobs that still run are ended."""
