"""Messages between an executor, its workers and their ranks, as JSON: assignments, events and
commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, field_validator

from ablate.config import DecodingConfig
from ablate.store.records import Execution, Result, Setting

EventOutcome = Literal["done", "diverged", "interrupted", "failed", "held", "unsuitable"]

# The two lines of the protocol that are not JSON: a worker's first line, and an executor's last.
READY = "ready\n"
NO_MORE_ASSIGNMENTS = "\n"


class _Message(BaseModel):
    # An unknown field is an error: a worker of another version would ignore a setting silently.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def to_line(self) -> str:
        """Encode the message as one line of JSON."""
        return self.model_dump_json() + "\n"

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Decode a line of JSON."""
        return cls.model_validate_json(line)


class RunRequest(_Message):
    """Request for one run of a study.

    folder: absolute path of the run's folder; its run.json has the settings.
    corpus: absolute path of the prepared corpus.
    test: name of the test set, as the study writes it.
    decodings: requested decodings, by decoding id.
    split: split that is decoded.
    settings: fields that are not part of the run's id, such as `checkpoint_minutes`; they may have
        changed since the run began.
    """

    folder: Path
    corpus: Path
    test: str
    decodings: dict[str, DecodingConfig]
    split: Literal["test", "dev"] = "test"
    settings: dict[str, Setting]

    @field_validator("folder", "corpus")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        if not path.is_absolute():
            raise ValueError(f"{path} is not an absolute path")
        return path

    @property
    def id(self) -> str:
        """The run's id."""
        return self.folder.name


class Assignment(_Message):
    """One run to execute, by one process on each of its devices.

    devices: a device for each process, such as `cpu` or `cuda:0`; their number is a power of two.
    threads: number of torch's threads, if the run has not begun; a run keeps its first number.
    micro_batch_tokens: number of padded tokens that fit in memory at once, if the run has not
        begun.
    halve_micro_batch: whether the system has killed the last worker for lack of memory.
    report_seconds: seconds between two progress reports.
    """

    run: RunRequest
    devices: tuple[str, ...]
    threads: int
    micro_batch_tokens: int
    halve_micro_batch: bool = False
    report_seconds: float = 1.0

    @field_validator("devices")
    @classmethod
    def _power_of_two(cls, devices: tuple[str, ...]) -> tuple[str, ...]:
        if len(devices).bit_count() != 1:
            raise ValueError(f"the number of processes is {len(devices)}, not a power of two")
        return devices

    @property
    def device(self) -> str:
        """The device of the first process."""
        return self.devices[0]


class WorkerEvent(_Message):
    """The end of work on an assignment.

    run: id of the run.
    outcome: `done`, `diverged`, `interrupted`, `failed`; `held` if another process holds the run's
        lease; `unsuitable` if the run cannot continue on this device, and is left unchanged.
    reason: one line that explains `failed` or `unsuitable`; empty for all other outcomes.
    """

    run: str
    outcome: EventOutcome
    reason: str = ""


class RankStart(_Message):
    """The first message to a follower.

    rank: rank of the follower.
    size: number of ranks.
    port: port of the store at which the ranks meet.
    """

    assignment: Assignment
    rank: int
    size: int
    port: int


class RankCommand(_Message):
    """A stage that all ranks go through: a training, or with `decoding` a decoding.

    execution: numeric settings of the run.
    keep: number of checkpoints that averaging uses, for a training.
    decoding: settings of a decoding; None for a training.
    result: result of the training that is decoded; None for a training.
    """

    execution: Execution
    keep: int = 1
    decoding: DecodingConfig | None = None
    result: Result | None = None
