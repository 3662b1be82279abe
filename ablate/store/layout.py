"""Every path of a results root.

results/
  runs/<id>/             one run
    run.json             resolved configuration, data and seed: what the id is made from, and how it was first decoded
    execution.json       how this machine carries it out: threads, micro-batch, device
    provenance.json      code, versions, machine
    metrics.jsonl        training loss and dev perplexity by step; the same bytes however often interrupted
    progress.json        where it is now, and which process is at it
    checkpoints/         weights, and what resuming needs
    translations/        the test side as translated, one file a way of decoding
    scores/              what sacreBLEU says of them, on resampled test sets too
    failure.json         why it last failed; absent otherwise
    log.txt              what the worker said
    lease                who works on it, while someone does
    sources/             the user's own variants that it uses, as they were when it was laid out
    result.json          written last: it exists if and only if the run is done or has diverged
  corpora/<id>/          a prepared corpus, named by the hash of its content; in ABLATE_CORPORA, where that is set
  corpora/downloads/     what revisions of the Hub's data sets were found to be
  <study>/               what a study renders

Every JSON file of a run or a corpus ends with its own hash. One that is damaged is renamed to `<name>.damaged`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.errors import Damaged, StoreError
from ablate.store.files import read_json

RESULT_FORMAT = 3  # 1 had no hash of its own, and in 2 decodings did not say of what they are
SHARED_CORPORA = "ABLATE_CORPORA"
_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class RunFolder:
    """One run's files."""

    path: Path

    @property
    def id(self) -> str:
        """The run's identity."""
        return self.path.name

    @property
    def run(self) -> Path:
        """What the run is."""
        return self.path / "run.json"

    @property
    def execution(self) -> Path:
        """How it is carried out."""
        return self.path / "execution.json"

    @property
    def provenance(self) -> Path:
        """What carried it out."""
        return self.path / "provenance.json"

    @property
    def metrics(self) -> Path:
        """Loss and perplexity by step."""
        return self.path / "metrics.jsonl"

    @property
    def progress(self) -> Path:
        """Where it is."""
        return self.path / "progress.json"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def failure(self) -> Path:
        """Why it failed."""
        return self.path / "failure.json"

    @property
    def log(self) -> Path:
        """What the worker said."""
        return self.path / "log.txt"

    @property
    def sources(self) -> Path:
        """Sources of the user's own variants."""
        return self.path / "sources"

    @property
    def lease(self) -> Path:
        """Held by the one process that works on the run."""
        return self.path / "lease"

    @property
    def result(self) -> Path:
        """What came out."""
        return self.path / "result.json"

    def translations(self, decoding: str) -> Path:
        """The translated test side for one way of decoding."""
        return self.path / "translations" / f"{decoding}.txt"

    def scores(self, decoding: str) -> Path:
        """What is remembered of the scores of one way of decoding."""
        return self.path / "scores" / f"{decoding}.json"

    def read_result(self) -> dict[str, Any] | None:
        """The result, or None while there is none.

        Raises:
            Damaged: it is not what was written, or not this run's.
            StoreError: it cannot be read, or is of another version.
        """
        result = read_json(self.result)
        if result is not None and result.get("format") != RESULT_FORMAT:
            raise StoreError(
                f"{self.result}: has format {result.get('format')}, and this ablate reads {RESULT_FORMAT}; "
                "use the version that wrote it, or another --results"
            )
        if result is not None and result.get("id") != self.id:
            raise Damaged(f"{self.result}: is the result of run {result.get('id')}, not of this one")
        return result


@dataclass(frozen=True)
class Results:
    """A results root."""

    root: Path

    def run(self, id: str) -> RunFolder:
        """The folder of a run."""
        assert _ID.fullmatch(id), id
        return RunFolder(self.root / "runs" / id)

    def run_ids(self) -> list[str]:
        """Every run there is, in the order of their ids."""
        folder = self.root / "runs"
        return sorted(p.name for p in folder.iterdir() if _ID.fullmatch(p.name)) if folder.is_dir() else []

    @property
    def corpora(self) -> Path:
        """The folder of prepared corpora: its own, or one that ABLATE_CORPORA names and several roots share."""
        shared = os.environ.get(SHARED_CORPORA)
        return Path(shared).expanduser() if shared else self.root / "corpora"

    def corpus(self, id: str) -> Path:
        """The folder of a prepared corpus, of its own or shared."""
        own = self.root / "corpora" / id
        return own if own.exists() else self.corpora / id

    def study(self, name: str) -> Path:
        """What a study renders."""
        return self.root / name
