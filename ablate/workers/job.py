"""Jobs and their events, as lines of JSON between an executor and its workers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, field_validator

from ablate.config import DecodingConfig
from ablate.store.records import Execution, Result, Setting

EventOutcome = Literal["done", "diverged", "interrupted", "failed", "busy", "unsuitable"]

# Lines of the protocol that are no JSON: a worker's first line, and an executor's last one.
READY = "ready\n"
NO_MORE_JOBS = "\n"


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

    folder: of the run, absolute; run.json in it has the settings.
    corpus: folder of the prepared corpus, absolute.
    test: name of the test set, as the study writes it.
    decodings: wanted, by decoding id.
    split: that they decode.
    settings: fields that are no part of the run's id, such as `checkpoint_minutes`; they may have
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


class Job(_Message):
    """One run to execute on one device, or on several by as many processes.

    device: such as `cpu` or `cuda:0`.
    peers: devices of the other processes; with the first one, a power of two.
    threads: of torch, for a run that has not begun; a run that has begun keeps its number.
    micro_batch_tokens: padded tokens that fit at once, for a run that has not begun.
    halve_micro_batch: the system killed the last worker for want of memory.
    report_seconds: between two reports of progress.
    """

    run: RunRequest
    device: str
    threads: int
    micro_batch_tokens: int
    halve_micro_batch: bool = False
    report_seconds: float = 1.0
    peers: tuple[str, ...] = ()

    @field_validator("peers")
    @classmethod
    def _power_of_two(cls, peers: tuple[str, ...]) -> tuple[str, ...]:
        if (1 + len(peers)).bit_count() != 1:
            raise ValueError(f"{1 + len(peers)} processes are no power of two")
        return peers

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of all processes."""
        return (self.device, *self.peers)


class JobEvent(_Message):
    """The end of work on one run of a job.

    outcome: `done`, `diverged`, `interrupted`, `failed`; `busy` if another process holds the run's
        lease; `unsuitable` if the run cannot continue on this device, and is left as it was.
    reason: of `failed` or `unsuitable`, one line.
    """

    run: str
    outcome: EventOutcome
    reason: str = ""


class RankStart(_Message):
    """The first message to a further process of a job: its rank, and where all meet."""

    job: Job
    rank: int
    size: int
    port: int


class RankCommand(_Message):
    """A stage of a run that all ranks go through; the first one sends it.

    execution: of a training; keep: number of checkpoints that averaging uses.
    decoding: settings of a decoding; result: of the training.
    """

    execution: Execution
    keep: int = 1
    decoding: DecodingConfig | None = None
    result: Result | None = None
