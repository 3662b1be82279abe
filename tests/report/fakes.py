"""Results written by hand, as runs would have left them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ablate.config.cost import Lengths
from ablate.data.corpus import FORMAT
from ablate.report.table import Table, table_of
from ablate.store import Results, RunFolder
from ablate.store.files import write_bytes, write_json
from ablate.store.layout import RESULT_FORMAT
from ablate.store.machine import machine
from ablate.store.status import process_mark
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
        before = folder.read_result() or {"decodings": {}}
        decoding = {"corpus": corpus, "ppl": ppl, "bleu": bleu, "signature": signature}
        steps = steps or row.config.train_steps
        facts = {**self._facts(folder), "corpus": corpus, "steps": steps, "seconds": seconds}
        decodings = {**before["decodings"], row.decoding: decoding}
        self._lay_out(label, seed)
        write_json(folder.result, {**facts, "outcome": "done", "decodings": decodings}, durable=False)

    def diverged(self, label: str, seed: int, step: int, reason: str) -> None:
        folder = self.folder(label, seed)
        self._lay_out(label, seed)
        facts = {**self._facts(folder), "corpus": CORPUS, "steps": step, "seconds": 5.0}
        write_json(folder.result, {**facts, "outcome": "diverged", "reason": reason}, durable=False)

    @staticmethod
    def _facts(folder: RunFolder) -> dict[str, Any]:
        return {"format": RESULT_FORMAT, "id": folder.id, "params": 1, "micro_batch_tokens": 1024, "halvings": 0}

    def failed(self, label: str, seed: int, reason: str) -> None:
        self.at(label, seed, 3, alive=False)
        write_json(self.folder(label, seed).failure, {"reason": reason, "time": time.time()}, durable=False)

    def at(self, label: str, seed: int, step: int, *, alive: bool, phase: str = "training", **more: Any) -> None:
        """The row's run was begun, and its process is still there or not."""
        mark = process_mark() if alive else {**process_mark(), "born": 1.0}
        content = {**mark, "phase": phase, "time": time.time(), "step": step, "steps": 100, **more}
        write_json(self.folder(label, seed).progress, content, durable=False)

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
        path = self.folder(label, seed).translations(self.row(label).decoding)
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
        config = self.row(label).config.model_dump()
        content = {"id": folder.id, "seed": seed, "config": config, "data": study.data.model_dump(exclude={"folder"})}
        write_json(folder.run, content, durable=False)
        how = {"machine": machine(), "device": "cpu", "threads": machine()["cores"]}
        write_json(folder.provenance, how, durable=False)
