"""Every path of a results root.

results/
  runs/<id>/             one run
    run.json             resolved configuration, data settings and seed: the input of the id's hash
    execution.json       micro-batch, threads and kind of device, fixed at the first start
    provenance.json      code, versions and machine
    metrics.jsonl        training loss and dev perplexity by step; independent of interruptions
    progress.json        last report of the process that works on the run
    checkpoints/         weights, and optimizer and random state for resuming
    translations/        predictions for the test split, one file for each decoding
    scores/              scores of the predictions, also on resampled test sets
    failure.json         reason of the last failure; absent otherwise
    log.txt              log lines of the workers
    lease                held by the one process that works on the run
    sources/             sources of the users' classes that the run uses
    result.json          written last: it exists if and only if the run is done or diverged
  corpora/<id>/          a prepared corpus, named by the hash of its content; or in ABLATE_CORPORA
  corpora/downloads/     resolved revisions of data sets on the Hub
  <study>/               the published table of a study
  .origins/<study>       path of the study file: one name belongs to one file
  .judged/<study>        seeds, metrics and margins of verdicts; a later change is noticed

Every JSON file of a run or a corpus ends with its own hash. A damaged one is renamed to
`<name>.damaged`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import join
from typing import Generic, Protocol, TypeVar

from ablate.config.training import resolve_precision
from ablate.errors import Damaged, Fault, StoreError, UsageError
from ablate.paths import home_path
from ablate.store.corpora import is_prepared
from ablate.store.files import is_there, make_room, quarantine
from ablate.store.records import (
    Execution,
    Failure,
    Progress,
    Provenance,
    Record,
    Result,
    RunRecord,
    none_if_damaged,
)

SHARED_CORPORA = "ABLATE_CORPORA"
ARCHIVE = "records.zip"  # records of the runs, in the folder of a published study
# The remedy where the text of a study is not the text of its runs.
RESTORE_TEXT = "restore the files, or use another --results for this text"
R = TypeVar("R", bound=Record)
_ID = re.compile(r"[0-9a-f]{12}")


class HasPath(Protocol):
    """An object that stands for a folder."""

    @property
    def path(self) -> Path:
        """Path of the folder."""


class Inside:
    """A descriptor: a path inside of the folder for which an object stands."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, folder: HasPath, owner: object = None) -> Path:
        return folder.path / self.name


class Reader(Generic[R]):
    """A descriptor: a method that reads the record at a path inside of a folder; None if the file
    does not exist.
    """

    def __init__(self, kind: type[R], place: Inside) -> None:
        self.kind = kind
        self.place = place

    def __get__(self, folder: HasPath, owner: object = None) -> Callable[[], R | None]:
        return partial(self.kind.read, self.place.__get__(folder))


def shared_runs(root: Path) -> str:
    """The clause on why runs may have other text than a study: the id of a run has no folder."""
    return f"studies that differ only in data.folder share their runs in {root}"


@dataclass(frozen=True)
class RunFolder:
    """The files of one run. A reading method returns None if the file does not exist, and raises
    `StoreError` if it is damaged or unreadable.
    """

    path: Path

    run = Inside("run.json")  # settings
    execution = Inside("execution.json")  # micro-batch, threads and device
    provenance = Inside("provenance.json")  # code, versions and machine
    metrics = Inside("metrics.jsonl")  # loss and perplexity by step, a `MetricsLine` a line
    progress = Inside("progress.json")  # the last report
    failure = Inside("failure.json")  # the reason of the last failure
    result = Inside("result.json")  # the outcome
    log = Inside("log.txt")  # log lines of the workers
    lease = Inside("lease")  # held by the process that works on the run
    checkpoints = Inside("checkpoints")
    sources = Inside("sources")  # sources of users' classes

    read_run = Reader(RunRecord, run)
    read_execution = Reader(Execution, execution)
    read_provenance = Reader(Provenance, provenance)
    read_progress = Reader(Progress, progress)
    read_failure = Reader(Failure, failure)

    @property
    def id(self) -> str:
        """The run's id."""
        return self.path.name

    @property
    def has_result(self) -> bool:
        """Whether result.json exists, damaged or not; False in a folder that this user must not
        read.
        """
        return is_there(self.result)

    def predictions(self, decoding: str) -> Path:
        """File of one decoding's predictions for the test split, one on each line."""
        return self.path.joinpath("translations", f"{decoding}.txt")

    def scores(self, decoding: str) -> Path:
        """File of the scores of one decoding's predictions: a `ScoreCache`."""
        return self.path.joinpath("scores", f"{decoding}.json")

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every folder in which a killed writer may leave a temporary file."""
        return self.path, self.checkpoints, self.predictions("").parent, self.scores("").parent

    def make_room(self) -> list[Path]:
        """Quarantine folders that are in the place of a file of this run, and files that are in the
        place of a folder.

        Returns:
            The paths that were quarantined.
        """
        folders = (*self.folders, self.sources)
        quarantined = []
        for path in folders:  # the folders first, because files may be in them
            if os.path.lexists(path) and not path.is_dir():
                quarantine(path)
                quarantined.append(path)
        places = [place for place in vars(RunFolder).values() if isinstance(place, Inside)]
        files = [self.path / place.name for place in places]
        for folder in self.folders[1:]:
            if is_there(folder):
                files += [path for path in folder.iterdir() if path.suffix != ".damaged"]
        for path in files:
            if path not in folders and make_room(path):
                quarantined.append(path)
        return quarantined

    def refuse_other_text(self, execution: Execution, training_hash: str) -> None:
        """Refuse to continue the run if its training and dev text has changed.

        Raises:
            StoreError: the run began with other text.
        """
        if execution.training_hash != training_hash:
            raise StoreError(
                f"{self.path}: the training data has changed since this run began (text "
                f"{execution.training_hash}, now {training_hash}); "
                f"{shared_runs(self.path.parent.parent)}; {RESTORE_TEXT}"
            )

    def refuse_other_precision(self, execution: Execution, precision: str | None) -> None:
        """Refuse to continue the run if its device chose another precision than the study now sets.

        Raises:
            StoreError: the run began in another precision.
        """
        began_in = execution.precision
        if precision in (None, "auto") or began_in is None:
            return
        if resolve_precision(precision, execution.device, has_bf16=True) != began_in:
            raise StoreError(
                f"{self.path}: began in {began_in}, which its device chose, but the study sets "
                f"precision={precision}; remove that setting, or use another --results"
            )

    def unusable_record(self) -> Fault | None:
        """The fault of a record that cannot be read or that another version wrote, which a person
        must mend; None if there is no such record. A damaged record is not one: it is made again.
        """
        for read in (self.read_run, self.read_execution, self.read_result):
            try:
                none_if_damaged(read)
            except StoreError as error:
                return error.faults[0]
        return None

    def read_result(self) -> Result | None:
        """Read result.json.

        Raises:
            Damaged: the file does not match its hash, or is the result of another run.
            StoreError: the file cannot be read, or another version wrote it.
        """
        result = Result.read(self.result)
        if result is not None and result.id != self.id:
            raise Damaged(f"{self.result}: is the result of run {result.id}")
        return result


@dataclass(frozen=True)
class Results:
    """A results root; by default the folder `results`."""

    root: Path = Path("results")

    def command(self, *words: object) -> str:
        """The command line of `ablate` with these words, for messages. It has `--results` unless
        this root is the default.
        """
        root = () if self == Results() else ("--results", self.root)
        return f"ablate {join(map(str, (*words, *root)))}"

    def run(self, id: str) -> RunFolder:
        """The folder of a run."""
        # The id becomes a path: `..` or a slash would leave the results root.
        assert _ID.fullmatch(id), id
        return RunFolder(self.root.joinpath("runs", id))

    def run_ids(self) -> list[str]:
        """The ids of all runs, sorted."""
        names = [path.name for path in (self.root / "runs").glob("*")]
        return sorted(filter(_ID.fullmatch, names))

    @property
    def corpora(self) -> Path:
        """The folder of prepared corpora: `corpora/`, or a folder that several results roots share,
        named by ABLATE_CORPORA.

        Raises:
            UsageError: ABLATE_CORPORA names the home folder of an unknown user.
        """
        shared = os.environ.get(SHARED_CORPORA)
        if not shared:
            return self.root / "corpora"
        try:
            return home_path(shared)
        except ValueError as error:
            raise UsageError(f"{SHARED_CORPORA}: {error}") from None

    def corpus(self, id: str) -> Path:
        """The folder of a prepared corpus, in this results root or in the shared folder."""
        # A results root that was filled before ABLATE_CORPORA was set keeps its corpora.
        here = self.root / "corpora" / id
        return here if is_prepared(here) else self.corpora / id

    def has_corpus(self, id: str) -> bool:
        """Whether a corpus is prepared, in this results root or in the shared folder."""
        return is_prepared(self.corpus(id))

    def study(self, name: str) -> Path:
        """The folder of a study's published table."""
        return self.root / name

    def origin(self, name: str) -> Path:
        """File with the path of the study file of a study."""
        return self.root / ".origins" / name

    def judged(self, name: str) -> Path:
        """File that records how a study was judged: a `Judgments`."""
        return self.root / ".judged" / name

    def origins(self) -> list[Path]:
        """The files with paths of study files, each named after its study."""
        return sorted((self.root / ".origins").glob("*"))
