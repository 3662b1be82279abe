"""The interface of an executor, which executes assignments in slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ablate.config import RowConfig
from ablate.store.machine import DEFAULT_RESOURCES, Resources
from ablate.workers.assignment import Assignment, WorkerEvent


@dataclass(frozen=True)
class Demand:
    """Requirements of a study, from which an executor chooses its slots.

    configs: configurations of all runs.
    vocab_size: size of the largest vocabulary.
    runs: number of runs of the whole study, or of a pilot's share of them.
    resources: resources that the runs may occupy.
    """

    configs: tuple[RowConfig, ...]
    vocab_size: int
    runs: int
    resources: Resources = DEFAULT_RESOURCES


@dataclass(frozen=True)
class Slot:
    """A place for one assignment.

    name: name of the slot, unique for its executor.
    devices: a device for each process that works on an assignment, such as `cpu` or `cuda:1`.
    threads: number of torch's threads in each process.
    memory: bytes on each device for weights, optimizer state and activations.
    has_bf16: whether the GPUs multiply in bf16.
    """

    name: str
    devices: tuple[str, ...]
    threads: int
    memory: float
    has_bf16: bool = True

    @property
    def kind(self) -> str:
        """Kind of the devices: `cpu` or `cuda`."""
        return self.devices[0].partition(":")[0]


def devices_text(slot: Slot) -> str:
    """Describe the devices of a slot for people: `cuda`, or `cuda (2 GPUs each)`."""
    count = len(slot.devices)
    if count == 1:
        return slot.kind
    unit = "GPUs" if slot.kind == "cuda" else "processes"
    return f"{slot.kind} ({count} {unit} each)"


@dataclass(frozen=True)
class Lost:
    """The end of an assignment without an event, because its process died.

    run: id of the run.
    reason: one line for people.
    from_outside: whether the process was killed by a signal from outside, so that nothing suggests
        that the assignment would fail again.
    out_of_memory: whether the system has killed the process for lack of memory.
    """

    run: str
    reason: str
    from_outside: bool = False
    out_of_memory: bool = False


class Executor(Protocol):
    """Executes assignments in slots. An assignment occupies its slot until its event or its loss
    is reported.
    """

    def slots(self) -> Sequence[Slot]:
        """All slots. A slot without an assignment is free."""

    def submit(self, assignment: Assignment, slot: Slot) -> None:
        """Start an assignment in a free slot."""

    def events(self, timeout: float) -> list[WorkerEvent | Lost]:
        """Wait up to `timeout` seconds, and return the events of submitted assignments.

        Raises:
            MachineError: no assignment can be started here.
        """

    def cancel(self) -> None:
        """Ask all workers to save and exit. A second call kills them."""

    def close(self) -> None:
        """Release all resources, and kill the workers that are left."""
