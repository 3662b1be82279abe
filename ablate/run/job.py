"""Jobs and their events, as lines of JSON between an executor and its workers."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, field_validator

from ablate.config import DecodingConfig
from ablate.store.records import Setting


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunRequest(_Message):
    """What a study asks of one run.

    folder: of the run, absolute; run.json in it has the settings.
    corpus: folder of the prepared corpus, absolute.
    test: name of the test set, as the study writes it.
    decodings: wanted, by decoding id.
    settings: fields that are no part of the run's id, such as `checkpoint_minutes`; they may have changed since the
        run began.
    """

    folder: Path
    corpus: Path
    test: str
    decodings: dict[str, DecodingConfig]
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
    """Runs to execute on devices. Several runs are trained together; several devices share each run.

    devices: such as `cpu` or `cuda:0`.
    threads: of torch, for a run that has not begun; one that has keeps its own.
    micro_batch_tokens: padded tokens that fit at once, for a run that has not begun.
    halve_micro_batch: the system killed the last worker for want of memory.
    """

    runs: tuple[RunRequest, ...]
    devices: tuple[str, ...]
    threads: int
    micro_batch_tokens: int
    halve_micro_batch: bool = False

    @property
    def run(self) -> RunRequest:
        """The only run of the job."""
        (run,) = self.runs
        return run

    @property
    def device(self) -> str:
        """The only device of the job."""
        (device,) = self.devices
        return device

    def to_line(self) -> str:
        """Encode the job as one line of JSON."""
        return self.model_dump_json() + "\n"

    @staticmethod
    def from_line(line: str) -> Job:
        """Decode a line of JSON."""
        return Job.model_validate_json(line)


class JobEvent(_Message):
    """The end of work on one run of a job.

    outcome: `done`, `diverged`, `interrupted`, `failed`, or `busy` if another process holds the run's lease.
    reason: of a failure, one line.
    """

    run: str
    outcome: str
    reason: str = ""

    def to_line(self) -> str:
        """Encode the event as one line of JSON."""
        return self.model_dump_json() + "\n"

    @staticmethod
    def from_line(line: str) -> JobEvent:
        """Decode a line of JSON."""
        return JobEvent.model_validate_json(line)
