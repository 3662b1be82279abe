"""What `ablate` asks of any cluster, and the settings that a submission to any of them has.

An engine is its profile: the settings of clusters.yaml with the methods that carry them out. A new
kind of cluster is a subclass in a new file, and an entry in `profiles.ENGINES`.
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
from ablate.errors import UsageError
from ablate.formatting import plural, size
from ablate.launch.devices import CPU_MEMORY_SHARE, PADDING
from ablate.store.jobs import ClusterJob, Device, JobFolder, Submission
from ablate.store.records import Setting
from ablate.study import Run
from ablate.study.typed import Keyed

START_SECONDS = 60.0  # a run that has less than this before the warning is not started
LIBRARY_BYTES = 500_000_000  # of a pilot, its worker and their libraries; importing takes 300 MB


@dataclass(frozen=True)
class Allocation:
    """What a cluster has allotted to this pilot until a time limit, and may give once more. This
    one has no limit, and nobody gives it again.

    name: as the commands of the cluster take it.
    restarts: how often it was requeued before.
    grace: seconds between the cluster's warning and the end.
    """

    name: str
    restarts: int = 0
    grace: int = 0

    has_queue: ClassVar[bool] = False  # into which a pilot can be put back

    def seconds_left(self) -> float | None:
        """Seconds until the time limit: infinite if there is none, None if no answer comes."""
        return math.inf

    def state(self) -> tuple[str, int]:
        """(State, number of restarts); (empty, the known number) if no answer comes."""
        return "", self.restarts

    def requeue(self) -> str:
        """Put this pilot back into the queue; the cluster then ends it. The reason of a refusal."""
        return "it has no queue"


class Engine(Keyed):
    """The settings that every profile has. These defaults are right where nothing is submitted."""

    engine: str
    workers: int = Field(1, ge=1, le=10_000, description="number of pilots, each on one node")
    idle: int = Field(
        90, ge=1, le=86_400, description="seconds that a pilot waits for runs of other pilots"
    )
    resubmissions: int = Field(
        3, ge=0, le=100, description="how often the job may be submitted again at its end"
    )

    gpus_setting: ClassVar[str] = ""  # which gives a pilot its GPUs, for messages
    submits_again: ClassVar[bool] = True  # at the end of the job, if runs are missing
    queues: ClassVar[bool] = False  # a closing job follows all pilots, and `cancel` ends them

    @property
    def gpus(self) -> int:
        """Number of GPUs of each pilot."""
        return 0

    def with_options(self, options: Mapping[str, Setting]) -> Self:
        """These settings with options of sbatch over them.

        Raises:
            UsageError: an option is wrong, or Slurm does not start the pilots.
        """
        if options:
            raise UsageError(
                f"--{next(iter(options))}: {self.engine} does not start pilots by Slurm"
            )
        return self

    def resolved(self, runs: Iterable[Run]) -> Self:
        """These settings, completed by the runs."""
        return self

    def options_text(self) -> str:
        """The settings that a plan shows."""
        return f"{self.engine}, default options"

    def check(
        self, runs: Iterable[Run], processes: int | None = 1, device: Device = "auto"
    ) -> None:
        """Check that the cluster can give what these settings ask for, and that its pilots have the
        memory and the GPUs of a run.

        Raises:
            UsageError: it cannot; a line for each reason.
        """
        if device == "cuda" and self.gpus_setting and (processes or 1) > self.gpus:
            raise UsageError(
                f"--gpus-per-run {processes}: a pilot has {plural(self.gpus, 'GPU')}; set "
                f"{self.gpus_setting}"
            )

    def notes(self) -> list[str]:
        """What a person should know before a submission."""
        return []

    def submit(
        self, folder: JobFolder, job: ClusterJob, pilots: int
    ) -> tuple[tuple[str, ...], str | None]:
        """Submit pilots.

        Returns:
            (Ids under which the cluster knows them, id of a closing job.)

        Raises:
            UsageError: the cluster refuses.
        """
        return (), None

    def submitted_text(self, folder: JobFolder, submission: Submission) -> str:
        """What was submitted, and what prints the table at the end."""
        return f"which you start; the last one prints the table:\nablate work --job {folder.path}"

    def cancel(self, submission: Submission, waiting_only: bool = False) -> str:
        """Cancel what was submitted, or only waiting pilots; the reason of a refusal."""
        return ""

    def drive(
        self, folder: JobFolder, python: str, pilots: int, log: Callable[[str], None]
    ) -> bool:
        """Run pilots from this process until all have ended; False if a signal has ended them.

        Raises:
            UsageError: the cluster starts pilots itself, or cannot run them.
        """
        raise UsageError(f"--drive: pilots of {self.engine} need no driver")

    def allocation(self) -> Allocation:
        """What this process has from the cluster."""
        return Allocation(f"{socket.gethostname()}-{os.getpid()}")


def least_memory(runs: Iterable[Run], micro_batch_tokens: int = SMALLEST_MICRO_BATCH) -> int:
    """Bytes for any of these runs on a CPU, such that estimates fill the usual share of memory."""
    largest = 0
    for run in runs:
        tokens = min(micro_batch_tokens, PADDING * run.config.batch_tokens)
        largest = max(largest, peak_memory(run.config, run.data.vocab_size, tokens))
    return LIBRARY_BYTES + int(largest / CPU_MEMORY_SHARE)


def refuse_too_little_memory(
    setting: str, given: Setting, bytes: float, runs: Iterable[Run]
) -> None:
    """Refuse an amount of memory that is too small for one of these runs on a CPU.

    Raises:
        UsageError: names the setting and the least amount.
    """
    least = least_memory(runs)
    if bytes < least:
        needed = f"{-(-least // 2**20)}M"
        raise UsageError(
            f"{setting}: {given} is less than the {size(least)} that the largest run and its "
            f"libraries need; give {needed} or more"
        )
