"""Results written by hand, as runs would have left them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ablate.config import DecodingConfig
from ablate.config.cost import Lengths
from ablate.data.corpus import FORMAT
from ablate.report.table import Table, table_of
from ablate.store import Results, RunFolder
from ablate.store.files import write_bytes, write_json
from ablate.store.machine import machine, process_mark
from ablate.store.records import Decoding, Failure, Progress, Provenance, Result, RunRecord, Score
from ablate.study import Row, Selection, Study, read_study

STUDIES = Path(__file__).parents[2] / "studies"
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
CORPUS = "0123456789ab"

SMALL = """\
study: small
data: {corpus: toy, vocab_size: 200}
base: {N: 2, d_model: 64, d_ff: 128, h: 4, train_steps: 100}
seeds: [1, 2, 3]
rows:
  A: {each: {h: [1, 2]}}
  D: {each: {dropout: [0.3]}}
  decoding: {each: {beam: [1]}}
"""


def study_from(folder: Path, text: str = SMALL, **selection: Any) -> Study:
    """A study from its text."""
    path = folder / "study.yaml"
    path.write_text(text)
    return read_study(path, Selection(**selection))


class Fake:
    """A study's results, written by hand."""

    def __init__(self, root: Path, study: Study) -> None:
        self.results, self.study = Results(root), study

    def row(self, label: str) -> Row:
        return next(row for row in self.study.rows if row.label == label)

    def folder(self, label: str, seed: int) -> RunFolder:
        runs = {run.seed: run for run in self.study.runs_of(self.row(label))}
        return self.results.run(runs[seed].id)

    def done(
        self, label: str, seed: int, ppl: float, bleu: float, *, corpus: str = CORPUS, signature: str = SIGNATURE,
        steps: int | None = None, seconds: float = 60.0,
    ) -> None:  # fmt: skip
        """The row's run is done, decoded in the row's way and in those that it already was."""
        row, folder = self.row(label), self.folder(label, seed)
        before = folder.read_result()
        settings = row.config.model_dump(include=set(DecodingConfig.model_fields))
        decoding = Decoding(
            **settings, test="test", corpus=corpus, averaged=settings["average_checkpoints"], predictions=1,
            sha256=None, seconds=1.0,
            scores={"ppl": Score(value=ppl), "bleu": Score(value=bleu, signature=signature)},
        )  # fmt: skip
        decodings = {**(before.decodings if before else {}), row.decoding: decoding}
        self._lay_out(label, seed)
        self._result(
            folder, outcome="done", corpus=corpus, steps=steps or row.config.train_steps, seconds=seconds,
            decodings=decodings,
        )  # fmt: skip

    def diverged(self, label: str, seed: int, step: int, reason: str) -> None:
        folder = self.folder(label, seed)
        self._lay_out(label, seed)
        self._result(folder, outcome="diverged", corpus=CORPUS, steps=step, seconds=5.0, reason=reason)

    @staticmethod
    def _result(folder: RunFolder, **fields: Any) -> None:
        usual = {"id": folder.id, "params": 1, "micro_batch_tokens": 1024, "halvings": 0, "metrics_sha256": "0" * 64}
        Result(**usual, **fields).write(folder.result, durable=False)

    def failed(self, label: str, seed: int, reason: str) -> None:
        self.at(label, seed, 3, alive=False)
        Failure(reason=reason, time=time.time()).write(self.folder(label, seed).failure, durable=False)

    def at(self, label: str, seed: int, step: int, *, alive: bool, phase: str = "training", **more: Any) -> None:
        """The row's run was begun, and its process is still there or not."""
        mark = process_mark().model_dump() | ({} if alive else {"born": 1.0})
        report = Progress(**mark, phase=phase, time=time.time(), **{"step": step, "steps": 100, **more})
        report.write(self.folder(label, seed).progress, durable=False)

    def corpus(self, sources: list[str], references: list[str]) -> None:
        """The corpus of these results is there, as far as reports read it."""
        folder = self.results.corpora / CORPUS
        lengths = Lengths.assumed().__dict__
        manifest = {"format": FORMAT, "lengths": lengths, "pairs": {"train": 1, "dev": 1, "test": len(references)}}
        write_json(folder / "corpus.json", manifest, durable=False)
        for side, lines in (("source", sources), ("target", references)):
            write_bytes(folder / f"test.{side}.txt", "".join(f"{line}\n" for line in lines).encode(), durable=False)

    def translated(self, label: str, seed: int, lines: list[str]) -> None:
        """What the row's run made of the test side, as it decodes it."""
        text = "".join(f"{line}\n" for line in lines)
        path = self.folder(label, seed).predictions(self.row(label).decoding)
        write_bytes(path, text.encode(), durable=False)

    def logged(self, label: str, seed: int, *lines: dict[str, Any]) -> None:
        """What the row's training wrote down."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_bytes(self.folder(label, seed).metrics, text.encode(), durable=False)

    def all_done(self, ppl: float = 5.0, bleu: float = 25.0) -> Fake:
        """Every row with scores of its own: a little worse from row to row, and from seed to seed."""
        for place, row in enumerate(self.study.rows):
            for seed in self.study.seeds:
                self.done(row.label, seed, ppl + place / 10 + seed / 100, bleu - place / 10 - seed / 100)
        return self

    def table(self) -> Table:
        return table_of(self.study, self.results)

    def _lay_out(self, label: str, seed: int) -> None:
        folder, study = self.folder(label, seed), self.study
        data = study.data.model_dump(exclude={"folder"})
        RunRecord(id=folder.id, seed=seed, config=self.row(label).config, data=data).write(folder.run, durable=False)
        where = machine()
        Provenance(machine=where, device="cpu", threads=where.cores).write(folder.provenance, durable=False)
