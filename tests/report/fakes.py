"""Results of a study, written as its runs would have left them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ablate.analysis.outcome import Outcome, outcome_of
from ablate.data.sequence_writer import SequenceWriter
from ablate.data.tokenizer import Encoded
from ablate.store import Results, RunFolder
from ablate.store.files import sha256, write_bytes
from ablate.store.processes import process_mark
from ablate.store.records import Decoding, MetricsLine, Phase, Result
from ablate.study import Row, Runs, Selection, Study, read_study, runs_of
from ablate.table.table import Table
from tests.records import (
    CORPUS,
    SIGNATURE,
    a_decoding,
    a_failure,
    a_manifest,
    a_progress,
    a_provenance,
    a_result,
    a_run,
    change,
    some_scores,
)

STUDIES = Path(__file__).parents[2] / "studies"

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
    """The results of a study."""

    def __init__(self, root: Path, study: Study | Runs) -> None:
        self.results = Results(root)
        self.planned = study if isinstance(study, Runs) else runs_of(study)

    @property
    def study(self) -> Study:
        return self.planned.study

    def row(self, label: str) -> Row:
        return self.planned.by_label[label]

    def folder(self, label: str, seed: int) -> RunFolder:
        runs = {run.seed: run for run in self.planned.of(self.row(label))}
        return self.results.run(runs[seed].id)

    def done(
        self, label: str, seed: int, ppl: float, bleu: float, *, corpus: str = CORPUS, signature: str = SIGNATURE,
        steps: int | None = None, seconds: float = 60.0, ppl_char: float | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """Finish a row's run, with the row's decoding and those that the run already has.

        ppl_char: follows from `ppl` unless given.
        fields: of the result.
        """
        row, folder = self.row(label), self.folder(label, seed)
        before = folder.read_result()
        scores = some_scores(ppl, bleu, signature, ppl_char)
        decoding = self.decoding(
            row, corpus=corpus, scores=scores, sha256=_sha256(folder.predictions(row.decoding))
        )
        decodings = {**(before.decodings if before else {}), row.decoding: decoding}
        steps = steps or row.config.train_steps
        self._begin(label, seed)
        result = a_result(
            folder.id, corpus=corpus, steps=steps, seconds=seconds, decodings=decodings, chosen_step=steps,
            **{"metrics_sha256": _sha256(folder.metrics), **fields},
        )  # fmt: skip
        result.write(folder.result, durable=False)

    @staticmethod
    def decoding(row: Row, **fields: Any) -> Decoding:
        """The evaluation of a run with a row's decoding settings."""
        settings = {
            name: getattr(row.config, name) for name in ("beam", "alpha", "max_extra_length")
        }
        count = row.config.average_checkpoints
        return a_decoding(**{**settings, "average_checkpoints": count, "averaged": count, **fields})

    def diverged(self, label: str, seed: int, step: int, reason: str) -> None:
        """Let a row's run diverge."""
        folder = self.folder(label, seed)
        self._begin(label, seed)
        hashes = {"metrics_sha256": _sha256(folder.metrics)}
        result = a_result(
            folder.id, outcome="diverged", steps=step, seconds=5.0, reason=reason, **hashes
        )
        result.write(folder.result, durable=False)

    def failed(self, label: str, seed: int, reason: str, *, killed: bool = False) -> None:
        """Let a row's run fail at its third step."""
        self.at(label, seed, 3, alive=False)
        a_failure(reason=reason, killed=killed).write(
            self.folder(label, seed).failure, durable=False
        )

    def at(
        self,
        label: str,
        seed: int,
        step: int,
        *,
        alive: bool,
        phase: Phase = "training",
        **fields: Any,
    ) -> None:
        """Leave a row's run at a step, with a process that lives or has died."""
        mark = process_mark() if alive else process_mark().model_copy(update={"born": 1.0})
        report = a_progress(mark, **{"phase": phase, "step": step, "steps": 100, **fields})
        report.write(self.folder(label, seed).progress, durable=False)

    def corpus(self, sources: list[str], references: list[str]) -> None:
        """Prepare the corpus of these results, as far as reports read it."""
        folder = self.results.corpora / CORPUS
        for field, lines in (("source", sources), ("target", references)):
            write_bytes(
                folder / f"test.{field}.txt",
                "".join(f"{line}\n" for line in lines).encode(),
                durable=False,
            )
            words = np.array([len(line.split()) for line in lines])
            with SequenceWriter(folder, "test", field) as writer:
                writer.add(Encoded(np.zeros(words.sum(), np.uint32), words))
        files = {path.name: sha256(path) for path in sorted(folder.glob("test.*"))}
        manifest = a_manifest(pairs={"train": 1, "dev": 1, "test": len(references)}, files=files)
        manifest.write(folder / "corpus.json", durable=False)

    def translated(self, label: str, seed: int, lines: list[str]) -> None:
        """Store translations of the test split, in the row's decoding."""
        folder, id = self.folder(label, seed), self.row(label).decoding
        write_bytes(
            folder.predictions(id), "".join(f"{line}\n" for line in lines).encode(), durable=False
        )
        result = folder.read_result()
        if result is not None and id in result.decodings:
            decoding = result.decodings[id].model_copy(
                update={"sha256": _sha256(folder.predictions(id))}
            )
            change(Result, folder.result, decodings={**result.decodings, id: decoding})

    def with_parts(
        self, label: str, seed: int, cut: Any = None, of: str = "bleu", **parts: float
    ) -> None:
        """Give a score of a finished run its parts, and its predictions those that were cut."""
        folder, id = self.folder(label, seed), self.row(label).decoding
        result = folder.read_result()
        assert result is not None
        decoding = result.decodings[id]
        score = decoding.scores[of].model_copy(update={"parts": parts})
        fields = {"scores": {**decoding.scores, of: score}, "cut": cut}
        decodings = {**result.decodings, id: decoding.model_copy(update=fields)}
        change(Result, folder.result, decodings=decodings)

    def logged(self, label: str, seed: int, *lines: dict[str, Any]) -> None:
        """Write the metrics log of a row's run; each line has the fields of a `MetricsLine`."""
        records = (MetricsLine(**{"tokens": 1000 * line["step"], **line}) for line in lines)
        text = "".join(
            json.dumps(record.model_dump(exclude_none=True)) + "\n" for record in records
        )
        folder = self.folder(label, seed)
        write_bytes(folder.metrics, text.encode(), durable=False)
        if folder.result.exists():
            change(Result, folder.result, metrics_sha256=_sha256(folder.metrics))

    def all_done(self, ppl: float = 5.0, bleu: float = 25.0) -> Fake:
        """Finish every run, each row and each seed a little worse than the one before."""
        for index, row in enumerate(self.study.rows):
            for seed in self.study.seeds.rows:
                worse = (
                    index / 10 + seed / 100 + index * (seed % 3) / 10_000
                )  # the seeds of a row differ a little
                self.done(row.label, seed, ppl + worse, bleu - worse)
        return self

    def each(self, scores: Callable[[Row, int], tuple[float, float]], **parts: float) -> Fake:
        """Finish every run with the perplexity and the BLEU that a function of row and seed gives.

        parts: of each BLEU.
        """
        for row in self.study.rows:
            for seed in self.study.seeds.rows:
                self.done(row.label, seed, *scores(row, seed))
                if parts:
                    self.with_parts(row.label, seed, **parts)
        return self

    def outcome(self) -> Outcome:
        return outcome_of(self.planned, self.results)

    def table(self) -> Table:
        return self.outcome().table

    def _begin(self, label: str, seed: int) -> None:
        folder, data = self.folder(label, seed), self.planned.data_of(self.row(label))
        record = a_run(
            folder.id,
            seed=seed,
            config=self.row(label).config,
            data=data.model_dump(exclude={"folder"}),
        )
        record.write(folder.run, durable=False)
        a_provenance().write(folder.provenance, durable=False)
        if not folder.metrics.exists():
            write_bytes(folder.metrics, b"", durable=False)


def _sha256(path: Path) -> str | None:
    """SHA-256 of a file; None if there is none."""
    return sha256(path) if path.exists() else None
