"""Typed records: the content of every JSON file that a run keeps.

Each record knows how to read and write itself as one file. Unknown keys are ignored, so that a
newer version may add some; a missing or mistyped one is refused with the file and the field.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    ValidationError,
    field_serializer,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from ablate.config import RowConfig
from ablate.config.decoding import LengthPenalty
from ablate.config.identity import DEFAULT_TASK, NOT_IDENTITY
from ablate.errors import Damaged, Fault, StoreError
from ablate.stats.metrics import LARGEST_SCORE
from ablate.store.files import open_file, read_bytes, read_json, write_json

MAX_FAILED_HOSTS = 2  # on which a run may fail before the run itself is at fault

Outcome = Literal["done", "diverged"]
Phase = Literal["starting", "training", "evaluating", "measuring", "decoding", "left"]
Setting = str | int | float | bool | None
# An id: `..` or a slash would leave the results root.
FileName = Annotated[str, Field(pattern=r"^[\w-]*$")]
T = TypeVar("T")

# Numbers of files, which anybody may have written: no calculation with them overflows, as the
# squares of scores in a variance.
Number = Annotated[float, Field(ge=-LARGEST_SCORE, le=LARGEST_SCORE, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
_BOUNDS = {"greater_than_equal", "less_than", "less_than_equal", "finite_number"}


class Record(BaseModel):
    """The content of one JSON file, or a part of it."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a record; None if the file does not exist.

        Raises:
            Damaged: the file does not match its hash.
            StoreError: the file cannot be read, or another version wrote it.
        """
        content = read_json(path)
        if content is None:
            return None
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "record"
            if first["type"] in _BOUNDS:
                raise Damaged(f"{path}: is damaged ({field}: {first['msg']})") from None
            raise StoreError(
                f"{path}: written by another version of ablate ({field}: {first['msg']}); use that "
                "version, or another --results"
            ) from None

    def write(self, path: Path, *, durable: bool = True, once: bool = False) -> None:
        """Write the record atomically; see `write_bytes` for the arguments and errors."""
        write_json(path, self.model_dump(mode="json"), durable, once)


def none_if_unreadable(read: Callable[[], T]) -> T | None:
    """Call a method that reads a record; None for every `StoreError`: a damaged file, a file that
    the system cannot read, and a file of another version.
    """
    try:
        return read()
    except StoreError:
        return None


def none_if_damaged(read: Callable[[], T]) -> T | None:
    """Call a method that reads a record; None for a damaged file. Other errors are raised."""
    try:
        return read()
    except Damaged:
        return None


def fault_in(read: Callable[[], object], remedy: str) -> Fault | None:
    """Call a method that reads a file; return the fault if it cannot be read, and None otherwise.

    Args:
        read: reads the file.
        remedy: what repairs a damaged file.
    """
    try:
        read()
    except Damaged as error:
        return replace(error.faults[0], remedy=remedy)
    except StoreError as error:
        return error.faults[0]
    return None


class RunRecord(Record):
    """run.json: the settings of a run, whose hash is its id.

    data: settings of the corpus, as the run's task defines them, without `folder`.
    """

    id: str
    seed: Count
    task: str = DEFAULT_TASK
    config: RowConfig
    data: dict[str, JsonValue]

    @field_serializer("config")
    def _without_execution_settings(self, config: RowConfig) -> dict[str, Any]:
        # Fields that may change between launches are part of the job instead.
        return config.model_dump(exclude=set(NOT_IDENTITY))


class Execution(Record):
    """execution.json: settings of execution that change the last digits of sums. The first start of
    a run chooses them.

    training: hash of the training and dev text.
    device: `cpu` or `cuda`, without an index.
    threads: number of CPU threads.
    micro_batch_tokens: initial size of the micro-batch, in padded tokens.
    halvings: how often the micro-batch was halved, after running out of memory.
    precision: precision of matrix products.
    deterministic: whether a GPU sums in a fixed order.
    parts: number of parts into which each batch is divided: at most this number of processes can
        train the run.
    """

    training: str
    device: str
    threads: Count
    micro_batch_tokens: Count
    halvings: Count = 0
    precision: Literal["bf16", "tf32", "fp32"]
    deterministic: bool = False
    parts: Count = 1

    @property
    def fitting_tokens(self) -> int:
        """The current size of the micro-batch, in padded tokens."""
        return max(1, -(-self.micro_batch_tokens // (1 << self.halvings)))

    def halved(self) -> Execution:
        """These settings with a micro-batch of half the size."""
        return self.model_copy(update={"halvings": self.halvings + 1})


class Machine(Record):
    """A machine, without anything that names a host, a person or a path."""

    processor: str
    cores: Count
    system: str


class CodeVersion(Record):
    """A version of ablate; `revision` and `dirty` are None outside of a git checkout."""

    version: str
    revision: str | None = None
    dirty: bool | None = None

    @property
    def text(self) -> str:
        """`ablate 0.2.0, revision 1a2b3c, with uncommitted changes`."""
        text = f"ablate {self.version}"
        if self.revision:
            text += f", revision {self.revision}"
        if self.dirty:
            text += ", with uncommitted changes"
        return text


# Packages of every run; others are those of a row's own classes.
PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors")


class Provenance(Record):
    """provenance.json: the code, versions, machine and precision that a run began with.

    processes: that trained it together.
    """

    ablate: CodeVersion | None = None
    python: str | None = None
    packages: dict[str, str | None] = Field(default_factory=dict)
    machine: Machine
    device: str
    threads: Count
    precision: str | None = None
    processes: Count = 1


class Memory(Record):
    """Bytes in use and bytes in total, of a host or a GPU."""

    held: Count
    total: Count


class ProcessMark(Record):
    """A process: its host, id and start time in seconds since the epoch.

    namespace: of the id, on Linux; containers on one host have different ones.
    """

    host: str
    pid: Count
    born: Number | None
    namespace: Count | None = None


class Progress(ProcessMark):
    """progress.json: the last report of the process that works on a run.

    time: of the report, in seconds since the epoch.
    seconds: of work on the run, including earlier processes.
    loss: training loss in nats per token, mean since the previous log line.
    perplexity: of the last evaluation on the dev split.
    peak_memory: the most bytes that a process has held on its GPU for the run so far; None on a
        CPU.
    """

    phase: Phase
    time: Number = 0.0
    threads: Count = 1
    device: str = "cpu"
    seconds: Number = 0.0
    memory: Memory | None = None
    peak_memory: Count | None = None
    step: Count | None = None
    steps: Count | None = None
    loss: Number | None = None
    perplexity: Number | None = None
    tokens_per_second: Number | None = None


class Failure(Record):
    """failure.json: why a run failed.

    kind: class of the exception, if there was one.
    killed: whether every worker was ended from outside, so that a new launch tries again.
    hosts: hosts on which the run has failed, the latest last. Pilots of a cluster try it once more
        on another host.
    """

    reason: str
    kind: str = ""
    time: Number
    killed: bool = False
    hosts: tuple[str, ...] = ()

    def may_succeed_on(self, host: str) -> bool:
        """Whether this host should try the run, although other hosts have failed."""
        return self.may_succeed_elsewhere and (self.killed or host not in self.hosts)

    @property
    def may_succeed_elsewhere(self) -> bool:
        """Whether a host that has not tried the run should try it."""
        return self.killed or len(self.hosts) < MAX_FAILED_HOSTS


class FileHash(Record):
    """A file of a run and its SHA-256."""

    file: str
    sha256: str


class Score(Record):
    """The value of a metric.

    signature: how it was computed; empty if all runs compute it in the same way.
    parts: `Metric.parts` of the score, by name.
    """

    value: float
    signature: str = ""
    parts: dict[str, Number] = Field(default_factory=dict)

    @property
    def is_storable(self) -> bool:
        """Whether the value is finite and not too large for files."""
        return abs(self.value) <= LARGEST_SCORE  # false for NaN


def _storable(score: Score) -> Score:
    # Here and not in the field: a task may measure any number, and is told so by the metric's name.
    if not score.is_storable:
        raise PydanticCustomError("finite_number", f"the score {score.value} is out of bounds")
    return score


class Decoding(Record):
    """The evaluation of a trained run with one set of decoding settings, on one test set.

    averaged: number of checkpoints averaged; fewer than `average_checkpoints` if training made
        fewer.
    length_penalty: its form.
    predictions: their number; None if the task predicts nothing.
    sha256: of the file of predictions.
    seconds: of decoding.
    generated: texts that the model generated for the report.
    cut: number of predictions that a limit of length ended, by the setting that limits; None if
        they were not counted, as formerly.
    """

    test: str
    corpus: FileName
    beam: Count
    alpha: Number
    length_penalty: LengthPenalty = "gnmt"
    max_extra_length: Count
    average_checkpoints: Count
    averaged: Count
    scores: dict[str, Annotated[Score, AfterValidator(_storable)]]
    predictions: Count | None
    sha256: str | None
    seconds: Number
    generated: tuple[str, ...] = ()
    cut: dict[str, Count] | None = None


class Result(Record):
    """result.json: the outcome of a run. It is written last, and exists if and only if the run is
    done or diverged.

    steps: optimizer steps made.
    params: trained parameters.
    seconds: of work on the run.
    metrics_sha256: of metrics.jsonl.
    reason: why a run diverged.
    chosen_step: the step whose weights are used; the last one, or the best one with `patience`.
    checkpoints_made: number of checkpoints that averaging may choose from.
    tokens: target tokens trained on.
    weights: the checkpoint of the chosen step.
    kept_steps: steps whose weights are kept for averaging.
    decodings: by decoding id.
    """

    format: Literal[4] = 4
    id: str
    corpus: FileName
    outcome: Outcome
    steps: Count
    params: Count
    seconds: Number
    micro_batch_tokens: Count
    halvings: Count
    metrics_sha256: str
    reason: str | None = None
    chosen_step: Count | None = None
    checkpoints_made: Count = 0
    tokens: Count | None = None
    weights: FileHash | None = None
    kept_steps: tuple[Count, ...] = ()
    decodings: dict[FileName, Decoding] = Field(default_factory=dict)


class TrainingState(Record):
    """The part of a checkpoint that is neither weights nor tensors.

    best_perplexity: None until the first evaluation.
    loss_tokens: tokens behind the partial loss sum since the last log line.
    metrics_bytes, metrics_sha256: the metrics log at this step.
    """

    step: Count
    tokens: Count
    best_perplexity: Number | None
    best_step: Count
    evaluations_since_best: Count
    loss_tokens: Count
    metrics_bytes: Count
    metrics_sha256: str


class CheckpointHashes(Record):
    """SHA-256 of both files of a checkpoint."""

    weights: str
    state: str


class CheckpointManifest(Record):
    """<step>.json: makes a checkpoint valid.

    step: of the optimizer, after which it was saved.
    scheduled: its step was due, so that averaging may use it; else the clock or a signal had it
        saved.
    """

    step: Count
    scheduled: bool
    sha256: CheckpointHashes
    info: TrainingState


class Measurement(Score):
    """A score of predictions, and the scores on resampled test sets."""

    # Packed: a study of thousands of runs holds a thousand numbers of each, in a quarter of the
    # memory of a tuple.
    resamples: Annotated[
        tuple[Number, ...], AfterValidator(partial(array, "d")), PlainSerializer(list)
    ]


class ScoreSource(Record):
    """SHA-256 of the predictions that were scored, and the corpus of the references."""

    format: Count
    translations: str
    corpus: str


class ScoreCache(Record):
    """scores/<decoding>.json: scores that follow from the predictions and the corpus."""

    of: ScoreSource
    metrics: dict[str, Annotated[Measurement, AfterValidator(_storable)]]


class Overlap(Record):
    """Test records that also occur in the training split.

    fields: by text field, the number of test records whose text of this field occurs in training.
    records: the number of test records that occur as a whole.
    """

    fields: dict[str, Count]
    records: Count

    def shares(self, test: int) -> dict[str, float]:
        """Shares of the test records by text field, and of `whole records`.

        `test` is the number of test records.
        """
        counts = dict(self.fields)
        if len(self.fields) > 1:
            counts["whole records"] = self.records
        return {name: count / test for name, count in counts.items()}


class CorpusCounts(Record):
    """Counts and warnings of a prepared corpus.

    pairs: number of records of each split.
    left_out: number of dropped training records, by reason.
    repaired: number of repairs of broken text, by split and kind.
    warnings: warnings by split.
    noticed: warnings of all splits, from an earlier version of ablate.
    longest: number of tokens of the longest sequence.
    lengths: sums of lengths, from which costs are computed.
    overlap: overlap of the test and training splits; None if not counted, as for language models
        and by earlier versions.
    """

    pairs: dict[str, Count]
    left_out: dict[str, Count]
    repaired: dict[str, dict[str, Count]] = Field(default_factory=dict)
    warnings: dict[str, list[str]] = Field(default_factory=dict)
    noticed: list[str] = Field(default_factory=list)
    longest: Count
    lengths: dict[str, Count]
    overlap: Overlap | None = None

    @property
    def notes(self) -> list[str]:
        """All warnings."""
        return [*chain.from_iterable(self.warnings.values()), *self.noticed]


class Origin(Record):
    """Origin of a split's text. Only the fields that were set are written.

    test_set: name of a test set of sacreBLEU.
    generated: name and version of the generator.
    hub, commit, licence: data set on the Hub, the commit that was read, and its stated license.
    files: names of files, without folders.
    part: where the split begins and ends, as shares of the characters of the text.
    max_bytes: largest number of bytes of the text that were used.
    sha256: hashes of the texts.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    test_set: str | None = Field(None, alias="test set")
    generated: str | None = None
    hub: str | None = None
    commit: str | None = None
    licence: str | None = None
    files: tuple[str, ...] | None = None
    part: tuple[Number, Number] | None = None
    max_bytes: Count | None = None
    sha256: tuple[str, ...] | None = None

    def updated(self, **fields: Any) -> Origin:
        """A copy with further fields set."""
        return self.model_copy(update=fields)

    @model_serializer
    def _set_fields(self) -> dict[str, JsonValue]:
        fields: dict[str, JsonValue] = {}
        for name, info in type(self).model_fields.items():
            if name in self.model_fields_set:
                value = getattr(self, name)
                fields[info.alias or name] = list(value) if isinstance(value, tuple) else value
        return fields


class CorpusManifest(CorpusCounts):
    """corpus.json: makes a prepared corpus valid.

    format: raised when the same text would be prepared or stored in another way.
    training: hash of all that training and dev scores depend on.
    data: the settings that prepared it, without `folder`.
    fields: text fields; None for source and target, which the first version did not name.
    sources: origin of each split.
    types: of the arrays.
    files, sizes: SHA-256 and bytes of each file.
    """

    format: Count
    training: str
    data: dict[str, JsonValue]
    fields: tuple[str, ...] | None = None
    sources: dict[str, Origin] = Field(default_factory=dict)
    types: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str]
    sizes: dict[str, Count] = Field(default_factory=dict)


class CorpusPointer(Record):
    """corpora/<hash of settings>.json: the corpus last prepared from some settings.

    signature: of the files of all splits, without reading them.
    """

    corpus: FileName
    signature: list[JsonValue] = Field(default_factory=list)


class TrainingText(Record):
    """read.json of a corpus in preparation: the outcome of the first pass over the training split.

    pairs: records that passed the filters of text.
    left_out, repaired: as in `CorpusCounts`. noticed: warnings about the training split.
    """

    pairs: Count
    left_out: dict[str, Count]
    repaired: dict[str, dict[str, Count]]
    noticed: list[str]


class EncodingState(Record):
    """state.json of a corpus in preparation: the last commit of the second pass over the training
    split.

    done: records that passed the filters of text and are encoded.
    ends: for each text field, the sizes of both files in bytes; None for fields without a commit.
    left_out: records left out for their length, by reason.
    """

    done: Count = 0
    ends: tuple[tuple[Count, Count] | None, ...]
    left_out: dict[str, Count] = Field(default_factory=dict)


class HubFile(Record):
    """A file of a data set on the Hub.

    size: in bytes.
    sha256, git: the one hash that the Hub has of it; SHA-256 for large files, of a git blob for
        small ones.
    verified: size and modification time in nanoseconds of the downloaded file that has matched its
        hash.
    """

    size: Count | None
    sha256: str | None
    git: str | None
    verified: tuple[Count, int] | None = None


class HubRevision(Record):
    """corpora/downloads/<data set>@<revision>.json: a data set on the Hub, as requested."""

    repository: str
    revision: str
    commit: str
    licence: str | None  # as stated; the key is spelled as in the first version
    files: dict[str, HubFile]


class Judgment(Record):
    """How a study was judged.

    plan: numbers of seeds; with a list of seeds, their number.
    base_runs: ids of base's runs.
    metrics: of the verdicts; None if written before 2026-11-27.
    margins: by metric; None likewise.
    """

    plan: tuple[Count, ...]
    base_runs: tuple[str, ...]
    metrics: tuple[str, ...] | None = None
    margins: dict[str, float] | None = None


class Judgments(Record):
    """.judged/<study>: how each version of a study was judged."""

    versions: tuple[Judgment, ...] = ()


class MetricsLine(Record):
    """A line of metrics.jsonl."""

    step: Count
    tokens: Count
    loss: Number | None = None
    lr: Number | None = None
    dev_perplexity: Number | None = None


def evaluation_at(path: Path, step: int | None) -> float | None:
    """Dev perplexity in a metrics log at a step; None if the log has none."""
    perplexity = None
    with suppress(StoreError):
        for line in read_metrics(path):
            if line.step == step and (line.dev_perplexity or 0.0) > 0:
                perplexity = line.dev_perplexity
    return perplexity


def read_metrics(path: Path) -> list[MetricsLine]:
    """The whole lines of a metrics log; those that are not a record, such as one being written, are
    left out.

    Raises:
        StoreError: the log cannot be read.
    """
    return parse_metrics(read_bytes(path) or b"")


class MetricsTail:
    """Follows a metrics log that another process writes: each reading takes only its new lines.

    An interrupted run cuts its log back to its last checkpoint, and writes the same lines again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = self.size = 0  # lines and bytes that were read

    def new_lines(self) -> tuple[int, list[MetricsLine]]:
        """Read the lines that were added since the last call; all lines if the log was cut.

        Returns:
            The number of lines before the new ones, and the new lines.
        """
        content = b""
        with suppress(OSError), open_file(self.path) as file:
            if file.seek(0, 2) < self.size:
                self.lines = self.size = 0
            file.seek(self.size)
            content = file.read()
        # Without an incomplete last line, which a worker may be writing.
        complete = content[: content.rfind(b"\n") + 1]
        previous = self.lines
        lines = parse_metrics(complete)
        self.lines += len(lines)
        self.size += len(complete)
        return previous, lines


def parse_metrics(content: bytes) -> list[MetricsLine]:
    """Parse lines of a metrics log. Lines that are not a record are skipped."""
    records = []
    for line in content.splitlines():
        # A kill may leave an incomplete last line, which a resumed run cuts off.
        with suppress(ValueError):
            records.append(MetricsLine.model_validate(json.loads(line)))
    return records
