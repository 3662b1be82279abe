"""The interface of a kind of cluster: the settings of a submission, and the methods that submit,
cancel and requeue.

An engine is a profile of clusters.yaml with methods. To add a kind of cluster, write a subclass in
a new file, and add it to `engines.ENGINES`. A pilot is a launcher of ablate on a node of the
cluster.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import Field

from ablate.config.memory import SMALLEST_MICRO_BATCH, peak_memory
from ablate.errors import Fault, UsageError
from ablate.formatting import plural, size
from ablate.launch.devices import CPU_MEMORY_SHARE, PADDING
from ablate.store.jobs import ClusterJob, JobFolder, Submission
from ablate.store.machine import DEFAULT_RESOURCES, Resources
from ablate.store.records import Setting
from ablate.study import Run
from ablate.study.typed import Keyed

START_SECONDS = 60.0  # no run is started with less time than this before the cluster's warning
# Memory of a pilot and its worker without the run; importing the libraries takes 300 MB.
LIBRARY_BYTES = 500_000_000


@dataclass(frozen=True)
class Allocation:
    """The share of a cluster that this pilot occupies until a time limit. This base class has no
    time limit, and cannot be requeued.

    name: id of the allocation, as the commands of the cluster take it.
    restarts: number of times that it was requeued before this process started.
    grace: seconds between the cluster's warning and the time limit.
    """

    name: str
    restarts: int = 0
    grace: int = 0

    has_queue: ClassVar[bool] = False  # whether the pilot can be put back into a queue

    def seconds_left(self) -> float | None:
        """Seconds until the time limit: infinite without a limit, None if the cluster does not
        answer.
        """
        return math.inf

    def state(self) -> tuple[str, int]:
        """The name of the state and the number of restarts; an empty name and the last known number
        if the cluster does not answer.
        """
        return "", self.restarts

    def requeue(self) -> str:
        """Put this pilot back into the queue, after which the cluster ends it.

        Returns:
            Why the cluster refuses; empty if it does not.
        """
        return "it has no queue"


class Engine(Keyed):
    """The settings that every profile has, with the methods of an engine that submits nothing."""

    engine: str
    workers: int = Field(1, ge=1, le=10_000, description="number of pilots, each on one node")
    idle: int = Field(
        90, ge=1, le=86_400, description="seconds that a pilot waits for runs of other pilots"
    )
    resubmissions: int = Field(
        3, ge=0, le=100, description="how often the job may be submitted again at its end"
    )

    gpus_setting: ClassVar[str] = ""  # name of the setting for the GPUs of a pilot, for messages
    submits_again: ClassVar[bool] = True  # whether missing runs are submitted again at the end
    # Whether a closing job follows the pilots, and `cancel` ends them
    queues: ClassVar[bool] = False

    @property
    def gpus(self) -> int:
        """Number of GPUs of each pilot."""
        return 0

    def with_options(self, options: Mapping[str, Setting]) -> Self:
        """A copy of these settings in which options of sbatch replace earlier ones.

        Raises:
            UsageError: an option is wrong, or Slurm does not start the pilots.
        """
        if options:
            raise UsageError(
                f"--{next(iter(options))}: {self.engine} does not start pilots by Slurm"
            )
        return self

    def resolved(self, runs: Iterable[Run]) -> Self:
        """A copy of these settings, in which unset ones follow from the runs."""
        return self

    def options_text(self) -> str:
        """The settings as `ablate plan` shows them."""
        return f"{self.engine}, default options"

    def check(self, runs: Iterable[Run], resources: Resources = DEFAULT_RESOURCES) -> None:
        """Check that the cluster has what these settings ask for, and that a pilot has the memory
        and the GPUs of each run.

        Raises:
            UsageError: a line for each reason why it does not.
            MachineError: the cluster cannot be reached from this machine.
        """
        processes = resources.processes or 1
        if resources.device == "cuda" and self.gpus_setting and processes > self.gpus:
            problem = f"--gpus-per-run {processes}: a pilot has {plural(self.gpus, 'GPU')}"
            raise UsageError(Fault(problem, remedy=f"set {self.gpus_setting}"))

    def notes(self) -> list[str]:
        """Lines that people should read before a submission."""
        return []

    def submit(
        self, folder: JobFolder, job: ClusterJob, pilots: int
    ) -> tuple[tuple[str, ...], str | None]:
        """Submit pilots.

        Returns:
            The ids that the cluster gives them, and the id of the closing job (None without one).

        Raises:
            UsageError: the cluster refuses.
        """
        return (), None

    def submitted_text(self, folder: JobFolder, submission: Submission) -> str:
        """Text for people: what was submitted, and which process prints the table at the end."""
        return f"which you start; the last one prints the table:\nablate work --job {folder.path}"

    def cancel(self, submission: Submission, waiting_only: bool = False) -> str:
        """Cancel a submission, or only its waiting pilots.

        Returns:
            Why the cluster refuses; empty if it does not.
        """
        return ""

    def drive(
        self, folder: JobFolder, python: str, pilots: int, log: Callable[[str], None]
    ) -> bool:
        """Run pilots from this process until all have ended.

        Returns:
            False if a signal has ended them, otherwise True.

        Raises:
            UsageError: the cluster starts pilots itself, or cannot run them.
        """
        raise UsageError(f"--drive: pilots of {self.engine} need no driver")

    def allocation(self) -> Allocation:
        """The allocation of this process."""
        return Allocation(f"{socket.gethostname()}-{os.getpid()}")


def least_memory(runs: Iterable[Run], micro_batch_tokens: int = SMALLEST_MICRO_BATCH) -> int:
    """Bytes of memory with which a pilot can train the largest of these runs on a CPU."""
    largest = 0
    for run in runs:
        tokens = min(micro_batch_tokens, PADDING * run.config.batch_tokens)
        largest = max(largest, peak_memory(run.config, run.data.vocab_size, tokens))
    return LIBRARY_BYTES + int(largest / CPU_MEMORY_SHARE)


def refuse_too_little_memory(
    setting: str, given: Setting, bytes: float, runs: Iterable[Run]
) -> None:
    """Refuse an amount of memory that is too small to train one of these runs on a CPU. `given` is
    the value of the setting as the user wrote it, and `bytes` the same amount.

    Raises:
        UsageError: names the setting and the least amount.
    """
    least = least_memory(runs)
    if bytes < least:
        needed = f"{math.ceil(least / 2**20)}M"
        problem = (
            f"{setting}: {given} is less than the {size(least)} that the largest run and its "
            f"libraries need"
        )
        raise UsageError(Fault(problem, remedy=f"give {needed} or more"))
