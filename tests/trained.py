"""A study with its results: commands on it, and the models of its rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config import DecodingConfig
from ablate.store import Results, RunFolder
from ablate.study import Row, Selection, Study, read_study, runs_of
from ablate.workers.assignment import Assignment, RunRequest
from ablate.workers.inference import LoadedRun, load_run
from tests.cli.inside import Done, inside


@dataclass(frozen=True)
class Trained:
    """A study, its results root, and the output of the command that trained it."""

    file: Path
    root: Path
    said: str = ""

    @property
    def study(self) -> Study:
        return read_study(self.file)

    def run(self, *words: object) -> Done:
        """Call `ablate run` in this process."""
        return self.ask("run", *words)

    def ask(self, verb: str, *words: object, stdin: bytes = b"") -> Done:
        """Call another command in this process."""
        return inside(verb, self.file, *words, "--results", self.root, stdin=stdin)

    def answer(self, verb: str, *words: object, stdin: bytes = b"") -> str:
        """The output of a command, which must succeed."""
        done = self.ask(verb, *words, stdin=stdin)
        assert done.code == 0, done.out + done.err
        return done.out

    def data(self, verb: str, *words: object, stdin: bytes = b"") -> Any:
        """The output of a command with `--format json`."""
        return json.loads(self.answer(verb, *words, "--format", "json", stdin=stdin))

    def table(self) -> dict[str, Any]:
        """The rows of the table, by label."""
        return {row["row"]: row for row in self.data("table")["rows"]}

    def beside(self, name: str, text: str) -> Trained:
        """Another study in the same folder, with the same results."""
        file = self.file.with_name(name)
        file.write_text(text)
        return Trained(file, self.root)

    def row(self, label: str, seed: int = 1) -> tuple[RunFolder, Row]:
        """The folder of a run of the first row whose label begins so, and the row."""
        study = read_study(self.file, Selection(seeds=str(seed)))
        row = next(row for row in study.rows if row.label.startswith(label))
        return Results(self.root).run(runs_of(study).of(row)[0].id), row

    def folder(self, label: str, seed: int = 1) -> RunFolder:
        """The folder of a row's run."""
        return self.row(label, seed)[0]

    def loaded(self, label: str) -> tuple[LoadedRun, Row]:
        """The trained model of a row, and the row."""
        folder, row = self.row(label)
        return load_run(folder, Results(self.root)), row

    def assignment(self, label: str) -> Assignment:
        """The work on a row's run, as a worker gets it."""
        run, row = self.row(label)
        (corpus,) = (path.parent for path in self.root.glob("corpora/*/corpus.json"))
        decoding = DecodingConfig(**row.config.model_dump(include=set(DecodingConfig.model_fields)))
        request = RunRequest(
            folder=run.path, corpus=corpus, test="test", decodings={row.decoding: decoding},
            settings={},
        )  # fmt: skip
        return Assignment(run=request, devices=("cpu",), threads=1, micro_batch_tokens=512)
