"""Typed records: the content of every JSON file that a run, a corpus or a study keeps.

A record reads and writes itself as one file. Unknown keys are ignored, so that a newer version may
add keys; a missing or mistyped key is refused, with the file and the key. If a key and its field
have different names, the key is the field's alias.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
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
    SerializerFunctionWrapHandler,
    ValidationError,
    field_serializer,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from ablate.config import RowConfig
from ablate.config.decoding import LengthPenalty
from ablate.config.identity import DEFAULT_TASK, NOT_IDENTITY
from ablate.errors import Damaged, Fault, StoreError
from ablate.formatting import percent
from ablate.stats.metrics import LARGEST_SCORE
from ablate.store.files import read_json, write_json

MAX_FAILED_HOSTS = 2  # number of hosts on which a run may fail before it counts as faulty

Outcome = Literal["done", "diverged"]
Phase = Literal["starting", "training", "evaluating", "measuring", "decoding", "left"]
Setting = str | int | float | bool | None
# A file name without dots and slashes, so that no path leaves the results root.
FileName = Annotated[str, Field(pattern=r"^[\w-]*$")]
T = TypeVar("T")

# A number in a file. Anybody may have written the file, so the number is bounded: then no
# calculation overflows, such as the squares of scores in a variance.
Number = Annotated[float, Field(ge=-LARGEST_SCORE, le=LARGEST_SCORE, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**63)]  # a non-negative integer, bounded too
_OUT_OF_BOUNDS_ERRORS = {"greater_than_equal", "less_than", "less_than_equal", "finite_number"}


class Record(BaseModel):
    """The content of one JSON file, or a part of it."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True, populate_by_name=True)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a record; None if the file does not exist.

        Raises:
            Damaged: the file does not match its hash, or a number in it is out of bounds.
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
            if first["type"] in _OUT_OF_BOUNDS_ERRORS:
                raise Damaged(f"{path}: is damaged ({field}: {first['msg']})") from None
            raise StoreError(
                f"{path}: written by another version of ablate ({field}: {first['msg']}); use that "
                "version, or another --results"
            ) from None

    def write(self, path: Path, *, durable: bool = True, once: bool = False) -> None:
        """Write the record atomically; see `write_bytes` for the arguments and errors."""
        write_json(path, self.model_dump(mode="json", by_alias=True), durable, once)


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
    """Call a method that reads a file; return the fault if the file cannot be read, and None
    otherwise. `remedy` repairs a damaged file.
    """
    try:
        read()
    except Damaged as error:
        return replace(error.faults[0], remedy=remedy)
    except StoreError as error:
        return error.faults[0]
    return None


class RunRecord(Record):
    """run.json: the settings of a run. Their hash is the run's id.

    task: name of the task, or a pinned reference to a user's class.
    config: configuration of the row for which the run was first started; further rows may share the
        run.
    data: settings of the corpus, as the run's task defines them, without `folder`.
    """

    id: str
    seed: Count
    task: str = DEFAULT_TASK
    config: RowConfig
    data: dict[str, JsonValue]

    @field_serializer("config")
    def _identity_settings(self, config: RowConfig) -> dict[str, Any]:
        # Leave out the fields that may change between launches. The job of each launch has them.
        return config.model_dump(exclude=set(NOT_IDENTITY))


class Execution(Record):
    """execution.json: numerical settings, which change the last digits of sums. They are chosen
    when the run first starts.

    training_hash: hash of the training and dev text.
    device: `cpu` or `cuda`, without an index.
    threads: number of CPU threads.
    micro_batch_tokens: initial size of the micro-batch, in padded tokens.
    halvings: number of times that the micro-batch was halved, after running out of memory.
    precision: precision of matrix products.
    deterministic: whether a GPU sums in a fixed order.
    parts: number of parts into which each batch is divided, which is also the largest number of
        processes that can train the run together.
    """

    training_hash: str = Field(alias="training")
    device: str
    threads: Count
    micro_batch_tokens: Count
    halvings: Count = 0
    precision: Literal["bf16", "tf32", "fp32"]
    deterministic: bool = False
    parts: Count = 1

    @property
    def current_micro_batch_tokens(self) -> int:
        """The size of the micro-batch after all halvings, in padded tokens."""
        return max(1, math.ceil(self.micro_batch_tokens / (1 << self.halvings)))

    def halved(self) -> Execution:
        """A copy with the micro-batch halved once more."""
        return self.model_copy(update={"halvings": self.halvings + 1})


class Machine(Record):
    """The hardware and the system of a machine, without names of hosts, persons or paths."""

    processor: str
    cores: Count
    system: str

    @property
    def kind(self) -> tuple[str, str]:
        """The processor and the system. Machines of one kind train at the same rate per core."""
        return self.processor, self.system


class CodeVersion(Record):
    """A version of ablate.

    revision: git revision; None outside of a git checkout.
    dirty: whether the checkout has uncommitted changes; None outside of a git checkout.
    changes: hash of the files with uncommitted changes; None without changes, and in the records of
        earlier versions.
    """

    version: str
    revision: str | None = None
    dirty: bool | None = None
    changes: str | None = None

    @property
    def text(self) -> str:
        """`ablate 0.2.0, revision 1a2b3c, with uncommitted changes 4d5e6f`."""
        text = f"ablate {self.version}"
        if self.revision:
            text += f", revision {self.revision}"
        if self.dirty:
            text += f", with uncommitted changes {self.changes or ''}".rstrip()
        return text


# Packages whose versions every run records, beside the packages of the user's classes.
PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "safetensors")


class Provenance(Record):
    """provenance.json: the code, versions, machine and precision with which a run began.

    packages: version of each package; None if it is not installed.
    processes: number of processes that trained the run together.
    later: provenances, different from each other, with which the run was resumed.
    """

    ablate: CodeVersion | None = None
    python: str | None = None
    packages: dict[str, str | None] = Field(default_factory=dict)
    machine: Machine
    device: str
    threads: Count
    precision: str | None = None
    processes: Count = 1
    later: tuple[Provenance, ...] = ()

    @property
    def all_parts(self) -> tuple[Provenance, ...]:
        """The provenance of each part of the training."""
        return self, *self.later

    # Without `later` if it is empty, so that the file is the same as in earlier versions.
    @model_serializer(mode="wrap")
    def _without_empty(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = serialize(self)
        if not self.later:
            content.pop("later", None)
        return content


class Memory(Record):
    """Memory of a host or a GPU, in bytes.

    held: memory in use.
    total: all memory.
    """

    held: Count
    total: Count


class ProcessMark(Record):
    """What identifies a process.

    host: name of the host.
    pid: process id.
    born: start time in seconds since the epoch; None if the system does not tell it.
    namespace: PID namespace on Linux; containers on one host have different namespaces.
    """

    host: str
    pid: Count
    born: Number | None
    namespace: Count | None = None


class Progress(ProcessMark):
    """progress.json: the last report of the process that works on a run.

    phase: what the process does; `left` if it no longer works on the run.
    time: time of the report, in seconds since the epoch.
    seconds: duration of work on the run, including earlier processes.
    memory: memory in use at the time of the report.
    peak_memory: largest number of bytes that a process has held on its GPU for the run so far;
        None on a CPU.
    step: optimizer steps made.
    steps: number of optimizer steps to make; None if early stopping decides.
    loss: training loss in nats per token, mean since the previous log line.
    perplexity: perplexity on the dev split, at the last evaluation.
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

    reason: description in one line.
    kind: name of the exception's class; empty without an exception.
    time: time of the failure, in seconds since the epoch.
    killed: whether the workers of all attempts were killed (out of memory, or by a signal) without
        raising an error; if so, the next launch tries again.
    hosts: hosts on which the run has failed, the latest last. On a cluster, the run is tried once
        more on another host.
    """

    reason: str
    kind: str = ""
    time: Number
    killed: bool = False
    hosts: tuple[str, ...] = ()

    def should_try_on(self, host: str) -> bool:
        """Whether this host should try the run, although it failed on other hosts."""
        return self.should_try_elsewhere and (self.killed or host not in self.hosts)

    @property
    def should_try_elsewhere(self) -> bool:
        """Whether a host on which the run has not failed should try it."""
        return self.killed or len(self.hosts) < MAX_FAILED_HOSTS


class FileHash(Record):
    """A file of a run and its SHA-256."""

    file: str
    sha256: str


class Score(Record):
    """The value of a metric.

    signature: description of the computation; empty if all runs compute the metric in the same
        way.
    parts: further numbers that are stored with the score, by name; see `Metric.parts`.
    """

    value: float
    signature: str = ""
    parts: dict[str, Number] = Field(default_factory=dict)

    @property
    def is_storable(self) -> bool:
        """Whether the value is finite and not too large for files."""
        return abs(self.value) <= LARGEST_SCORE  # false for NaN


def _storable(score: Score) -> Score:
    # Checked when a file is read, not when a Score is made: a task may make a score with any value,
    # which the pipeline (`_refuse_invalid_scores`) refuses in an error that names the metric.
    if not score.is_storable:
        raise PydanticCustomError("finite_number", f"the score {score.value} is out of bounds")
    return score


class Decoding(Record):
    """The evaluation of a trained run with one set of decoding settings, on one test set.

    test: name of the test set.
    corpus: id of the corpus.
    beam, alpha, length_penalty, max_extra_length, average_checkpoints: the decoding settings.
    averaged: number of checkpoints that were averaged; below `average_checkpoints` if training
        saved fewer.
    scores: scores by metric.
    n_predictions: number of predictions; None if the task predicts nothing.
    sha256: hash of the file of predictions.
    seconds: duration of decoding.
    generated: texts that the model generated for the report.
    cut: for each setting that limits length, the number of predictions that it truncated; None in
        results of earlier versions, which did not count truncated predictions.
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
    n_predictions: Count | None = Field(alias="predictions")
    sha256: str | None
    seconds: Number
    generated: tuple[str, ...] = ()
    cut: dict[str, Count] | None = None


class Result(Record):
    """result.json: the outcome of a run. It is written last, and exists if and only if the run is
    done or diverged.

    corpus: id of the corpus on which the run was trained.
    steps: number of optimizer steps made.
    params: number of trained parameters.
    seconds: duration of work on the run.
    micro_batch_tokens: final size of the micro-batch, in padded tokens.
    halvings: number of times that the micro-batch was halved.
    metrics_sha256: hash of metrics.jsonl.
    reason: why a run diverged.
    chosen_step: the step whose weights are used: the last step, or the best step with `patience`.
    scheduled_checkpoints: number of checkpoints that averaging may choose from.
    tokens: number of target tokens trained on.
    weights: weights of the chosen step.
    kept_steps: steps whose weights are kept for averaging.
    decodings: decodings of the trained model, by decoding id.
    """

    format: Literal[4] = 4  # a file of another format is refused
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
    scheduled_checkpoints: Count = Field(0, alias="checkpoints_made")
    tokens: Count | None = None
    weights: FileHash | None = None
    kept_steps: tuple[Count, ...] = ()
    decodings: dict[FileName, Decoding] = Field(default_factory=dict)


class TrainingState(Record):
    """The numbers of a checkpoint. Its tensors are in two other files: weights, and training state.

    tokens: number of target tokens trained on.
    best_perplexity: lowest perplexity on the dev split; None until the first evaluation.
    best_step: step of `best_perplexity`.
    evaluations_since_best: number of evaluations after `best_step`, for early stopping.
    loss_tokens: number of target tokens in the loss sum since the last log line.
    metrics_bytes, metrics_sha256: size and hash of the metrics log at this step.
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
    """<step>.json: a checkpoint is valid only if this file exists and its hashes match.

    step: optimizer step after which the checkpoint was saved.
    scheduled: whether the row schedules a checkpoint at this step, so that averaging may use it.
        Other checkpoints were saved only for resuming, after an interval of time or on a signal.
    """

    step: Count
    scheduled: bool
    sha256: CheckpointHashes
    info: TrainingState


class Measurement(Score):
    """A score of predictions, and the scores on resampled test sets."""

    # At run time, an array("d"), which needs a quarter of a tuple's memory and is used as one: a
    # study of thousands of runs holds a thousand resamples of each run.
    resamples: Annotated[
        tuple[Number, ...], AfterValidator(partial(array, "d")), PlainSerializer(list)
    ]


class ScoreSource(Record):
    """The inputs from which scores were computed.

    format: format of the cache; see `score_cache.FORMAT`.
    predictions_sha256: hash of the file of predictions.
    corpus: id of the corpus with the references.
    """

    format: Count
    predictions_sha256: str = Field(alias="translations")
    corpus: str


class ScoreCache(Record):
    """scores/<decoding>.json: scores that were computed from predictions and a corpus.

    source: identifies the predictions and the corpus.
    metrics: scores by metric.
    """

    source: ScoreSource = Field(alias="of")
    metrics: dict[str, Annotated[Measurement, AfterValidator(_storable)]]


class Overlap(Record):
    """Numbers of dev or test records that also occur in the training split.

    by_field: for each text field, the number of records whose text in this field occurs in the
        training split.
    records: number of records of which all fields occur together in one training record.
    """

    by_field: dict[str, Count] = Field(alias="fields")
    records: Count

    def shares(self, n_records: int) -> dict[str, float]:
        """Share of the records (`n_records` in all) that occur in the training split, by text
        field; with several fields, also for `whole records`.
        """
        counts = dict(self.by_field)
        if len(self.by_field) > 1:
            counts["whole records"] = self.records
        return {name: count / n_records for name, count in counts.items()}


MIN_LEAK = 0.05  # share of dev or test records in the training split that warrants a warning


class CorpusCounts(Record):
    """Counts and warnings of a prepared corpus.

    records: number of records of each split.
    left_out: number of dropped training records, by reason.
    repaired: number of repairs of broken text, by split and kind.
    warnings: warnings by split.
    legacy_warnings: warnings about all splits, in manifests of earlier versions.
    exchanged: splits whose two sides are exchanged, which `warnings` says in words; left out of the
        file if there is none.
    longest: number of tokens of the longest sequence.
    lengths: sums of lengths, from which costs are computed.
    overlap: overlap of the test and training splits; None if it was not counted: for generated
        items, and in manifests of earlier versions.
    dev_overlap: overlap of the dev and training splits; None as for `overlap`.
    """

    records: dict[str, Count] = Field(alias="pairs")
    left_out: dict[str, Count]
    repaired: dict[str, dict[str, Count]] = Field(default_factory=dict)
    warnings: dict[str, list[str]] = Field(default_factory=dict)
    legacy_warnings: list[str] = Field(default_factory=list, alias="noticed")
    exchanged: list[str] = Field(default_factory=list)
    longest: Count
    lengths: dict[str, Count]
    overlap: Overlap | None = None
    dev_overlap: Overlap | None = None

    # A corpus without exchanged sides has the same bytes as in earlier versions.
    @model_serializer(mode="wrap")
    def _without_empty(self, serialize: SerializerFunctionWrapHandler) -> dict[str, JsonValue]:
        content: dict[str, JsonValue] = serialize(self)
        if not self.exchanged:
            content.pop("exchanged", None)
        return content

    @property
    def overlaps(self) -> dict[str, Overlap]:
        """Overlaps of the test and dev splits with the training split, if they were counted."""
        overlaps = {"test": self.overlap, "dev": self.dev_overlap}
        return {split: overlap for split, overlap in overlaps.items() if overlap is not None}

    @property
    def overlap_shares(self) -> dict[str, dict[str, float]]:
        """Shares of the test and dev records that occur in the training split, by split and text
        field; without splits whose overlap was not counted.
        """
        shares = {}
        for split, overlap in self.overlaps.items():
            shares[split] = overlap.shares(self.records[split])
        return shares

    @property
    def leaks(self) -> dict[str, str]:
        """`100 % of the test records are also in the training split`, by split, for dev and test
        with a share of at least MIN_LEAK.
        """
        leaks = {}
        for split, overlap in self.overlaps.items():
            share = overlap.records / self.records[split]
            if share >= MIN_LEAK:
                leaks[split] = (
                    f"{percent(share)} of the {split} records are also in the training split"
                )
        return leaks

    @property
    def text_warnings(self) -> list[str]:
        """The warnings about all splits except `leaks`, whichever version wrote the manifest."""
        return [*chain.from_iterable(self.warnings.values()), *self.legacy_warnings]

    @property
    def all_warnings(self) -> list[str]:
        """The warnings about all splits."""
        return [*self.text_warnings, *self.leaks.values()]


class Origin(Record):
    """Origin of a split's text. Only the fields that were set are written.

    test_set: name of a test set of sacreBLEU.
    generated: name and version of the generator.
    hub: name of the data set on the Hub.
    commit: commit of the data set.
    licence: license that the data set states.
    files: names of files, without folders.
    part: begin and end of the split, as shares of the characters of the text.
    max_bytes: limit of the number of bytes that are read.
    sha256: hashes of the texts.
    """

    test_set: str | None = Field(None, alias="test set")
    generated: str | None = None
    hub: str | None = None
    commit: str | None = None
    licence: str | None = None
    files: tuple[str, ...] | None = None
    part: tuple[Number, Number] | None = None
    max_bytes: Count | None = None
    sha256: tuple[str, ...] | None = None

    # Always by alias, so that an origin reads the same in the manifest and in `ablate data`.
    @model_serializer
    def _without_unset(self) -> dict[str, JsonValue]:
        fields: dict[str, JsonValue] = {}
        for name, info in type(self).model_fields.items():
            if name in self.model_fields_set:
                value = getattr(self, name)
                fields[info.alias or name] = list(value) if isinstance(value, tuple) else value
        return fields


class CorpusManifest(CorpusCounts):
    """corpus.json: a prepared corpus is valid only if this file exists and its hashes match.

    format: format of the corpus; increased when a new version prepares or stores the same text
        differently.
    training_hash: hash of everything that training and dev scores depend on.
    data: the settings that prepared the corpus, without `folder`.
    fields: names of the text fields; None means (source, target), as in manifests of the first
        version.
    sources: origin of each split, by split.
    types: data types of the arrays, by suffix of the file.
    files: SHA-256 of each file, by name.
    sizes: bytes of each file, by name.
    """

    format: Count
    training_hash: str = Field(alias="training")
    data: dict[str, JsonValue]
    fields: tuple[str, ...] | None = None
    sources: dict[str, Origin] = Field(default_factory=dict)
    types: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str]
    sizes: dict[str, Count] = Field(default_factory=dict)


class CorpusPointer(Record):
    """corpora/<hash of settings>.json: the corpus that was last prepared from these settings.

    signature: sizes and modification times of the files of all splits; a difference shows that a
        file was changed, without reading the files.
    """

    corpus: FileName
    signature: list[JsonValue] = Field(default_factory=list)


class TrainingText(Record):
    """read.json of a corpus in preparation: the outcome of the first pass over the training split.

    records: number of records that passed the text filters.
    left_out: number of dropped records, by reason.
    repaired: number of repairs of broken text, by split and kind.
    warnings: warnings about the training split.
    is_exchanged: whether the two sides of the training split are exchanged.
    """

    records: Count = Field(alias="pairs")
    left_out: dict[str, Count]
    repaired: dict[str, dict[str, Count]]
    warnings: list[str] = Field(alias="noticed")
    is_exchanged: bool = False


class EncodingState(Record):
    """state.json of a corpus in preparation: how much of the training split the second pass has
    safely written. An interrupted preparation continues from there.

    done: number of records that passed the text filters and are encoded.
    ends: for each text field, the sizes in bytes of its two files, ids and offsets; None if nothing
        has been written yet.
    left_out: number of records dropped for their length, by reason.
    """

    done: Count = 0
    ends: tuple[tuple[Count, Count] | None, ...]
    left_out: dict[str, Count] = Field(default_factory=dict)


class HubFile(Record):
    """A file of a data set on the Hub.

    size: size in bytes; None if the Hub does not tell it.
    sha256: SHA-256 of the file; the Hub has it for large files only.
    git: hash of the git blob; the Hub has it for small files only.
    verified: size and modification time (in nanoseconds) of the downloaded file when it matched its
        hash; None before.
    """

    size: Count | None
    sha256: str | None
    git: str | None
    verified: tuple[Count, int] | None = None


class HubRevision(Record):
    """corpora/downloads/<data set>@<revision>.json: a revision of a data set on the Hub.

    repository: name of the data set.
    revision: branch, tag or commit that was requested.
    commit: the commit to which `revision` was resolved.
    licence: license that the data set states.
    files: files by path.
    """

    repository: str
    revision: str
    commit: str
    licence: str | None
    files: dict[str, HubFile]


class Judgment(Record):
    """How a study was judged.

    seeds_per_look: number of seeds at each look, such as (3, 5, 8); for a study without looks, one
        number, such as (5,).
    base_runs: ids of base's runs.
    metrics: metrics of the verdicts; None in files of earlier versions.
    margins: margin of equivalence of each metric; None in files of earlier versions.
    rows: hash of each row except base, without a seed; None in files of earlier versions.
    """

    seeds_per_look: tuple[Count, ...] = Field(alias="plan")
    base_runs: tuple[str, ...]
    metrics: tuple[str, ...] | None = None
    margins: dict[str, float] | None = None
    rows: tuple[str, ...] | None = None


class Judgments(Record):
    """.judged/<study>: how each version of a study was judged."""

    versions: tuple[Judgment, ...] = ()


class MetricsLine(Record):
    """A line of metrics.jsonl: the loss and the learning rate, or an evaluation.

    step: optimizer steps made.
    tokens: number of target tokens trained on.
    loss: training loss in nats per token, mean since the previous log line.
    lr: learning rate.
    dev_perplexity: perplexity on the dev split.
    """

    step: Count
    tokens: Count
    loss: Number | None = None
    lr: Number | None = None
    dev_perplexity: Number | None = None
