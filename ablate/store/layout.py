"""Every path of a results root.

results/
  runs/<id>/             one run
    run.json             resolved configuration, data and seed: what the id is the hash of
    execution.json       how this machine carries it out: threads, micro-batch, device
    provenance.json      code, versions, machine
    metrics.jsonl        training loss and dev perplexity by step; the same bytes however often interrupted
    progress.json        where it is now, and which process is at it
    checkpoints/         weights, and what resuming needs
    translations/        the test side as translated, one file a way of decoding
    scores/              what sacreBLEU says of them, on resampled test sets too
    failure.json         why it last failed; absent otherwise
    log.txt              what the worker said
    sources/             the user's own variants that it uses, as they were when it was laid out
    result.json          written last: it exists if and only if the run is done or has diverged
  corpora/<id>/          a prepared corpus, named by the hash of its content
  <study>/               what a study renders
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.store.files import read_json

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
    def lock(self) -> Path:
        """Held by the one process that works on the run."""
        return self.path / "lock"

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
            StoreError: it is damaged.
        """
        return read_json(self.result)


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
        """The folder of prepared corpora."""
        return self.root / "corpora"

    def study(self, name: str) -> Path:
        """What a study renders."""
        return self.root / name
