"""`ablate verify`: compare stored files with their hashes, and check that training resumes exactly
on this machine.
"""

from __future__ import annotations

import functools
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from ablate.analysis.tuning_runs import with_tuning_runs
from ablate.cli.arguments import flag, option
from ablate.cli.options import DEFAULT_STUDY, Device, StudyFile, StudyOptions, torch_device
from ablate.cli.output import Format
from ablate.errors import EXIT_RUN_FAILED, ineffective_option
from ablate.formatting import plural
from ablate.launch.devices import local_slots, micro_batch
from ablate.launch.executor import Demand
from ablate.stdio import echo, print_json
from ablate.store import Results, none_if_unreadable
from ablate.store.audit import Audit, audit
from ablate.store.corpora import MANIFEST, is_archived, known_corpus, names_other_files
from ablate.store.machine import Resources
from ablate.store.records import CorpusManifest
from ablate.study import Row, Runs

EXAMPLE = "ablate verify study.yaml --stored"
STEPS = 4  # training steps of the check of resumption


def command(
    study: StudyFile = DEFAULT_STUDY,
    *,
    options: StudyOptions,
    device: Device = "auto",
    steps: Annotated[
        int | None,
        option(
            "Training steps for the check of resumption.",
            "N",
            min=2,
            max=1000,
            show_default=str(STEPS),
        ),
    ] = None,
    stored: Annotated[bool, flag("--stored", "Check stored files only; train nothing.")] = False,
    format: Format = "text",
) -> None:
    """Re-hash every stored file; check that training resumes exactly."""
    training_options = [("device", device != "auto"), ("steps", steps)]
    if stored and (given := [f"--{name}" for name, value in training_options if value]):
        raise ineffective_option(given[0], "has no effect with --stored, which trains nothing")
    options.refuse_missing_results()
    planned, root = options.open(study)
    checked = _check_stored(planned, root)
    if format == "text":
        echo("\n".join(checked.lines()))
    resumed = []
    if not stored:
        # Base is enough to check the machine.
        rows = planned.rows if options.rows else planned.rows[:1]
        for row in rows:
            check = _check_resume(planned, row, root, device, steps or STEPS)
            if format == "text":
                echo(check.line())
            resumed.append(check)
    if format == "json":
        found = [asdict(check) for check in resumed]
        print_json({"study": planned.study.name, "stored": asdict(checked), "resumed": found})
    if checked.damaged or any(check.difference for check in resumed):
        raise typer.Exit(EXIT_RUN_FAILED)


@dataclass(frozen=True)
class _Stored:
    """The outcome of the check of stored files: numbers of files, runs, unfinished runs and
    corpora, and a line for each damaged file.
    """

    files: int
    runs: int
    unfinished: int
    corpora: int
    damaged: list[str]

    def lines(self) -> list[str]:
        """The lines for damaged files, then a summary."""
        checked = f"{plural(self.files, 'file')} of {plural(self.runs, 'run')}"
        if self.unfinished:
            checked += f", of which {self.unfinished} not finished,"
        prepared = f"{self.corpora} {'corpus' if self.corpora == 1 else 'corpora'}"
        verdict = f"{len(self.damaged)} damaged" if self.damaged else "all unchanged"
        return [*self.damaged, f"stored: {checked} and {prepared}: {verdict}"]


@dataclass(frozen=True)
class _Resumed:
    """The outcome of the check of resumption: an interrupted and resumed training, compared with an
    uninterrupted one.

    difference: the first difference between the two; None if they are equal.
    """

    row: str
    steps: int
    device: str
    difference: str | None

    def line(self) -> str:
        """The outcome as a line."""
        how = f"{self.steps} steps on {self.device}, with and without a stop after"
        verdict = f"DIFFERENT: {self.difference}" if self.difference else "identical"
        return f"{self.row}: {how} {self.steps // 2}: {verdict}"


def _check_stored(planned: Runs, results: Results) -> _Stored:
    """Compare the stored files of runs and corpora with their hashes."""
    report, runs, unfinished = Audit(), 0, 0
    for run in with_tuning_runs(planned):
        folder = results.run(run.id)
        if folder.path.is_dir():
            runs += 1
            unfinished += not folder.result.exists()
            audit(folder, report)
    corpora = 0
    for corpus in _manifests(planned, results):
        manifest = report.read(functools.partial(CorpusManifest.read, corpus))
        corpora += manifest is not None
        if not os.path.lexists(corpus):
            report.faults.append(f"{corpus}: is missing")
        if manifest is None:
            continue
        if names_other_files(manifest):
            report.faults.append(f"{corpus}: lists a file outside its folder")
            continue
        if is_archived(corpus.parent):
            continue
        for name, expected in manifest.files.items():
            report.file(corpus.parent / name, expected)
    return _Stored(report.files, runs, unfinished, corpora, report.faults)


def _manifests(planned: Runs, results: Results) -> list[Path]:
    """The manifests of the corpora of the study and of its results."""
    manifests: set[Path] = set()  # a set, because most rows share one corpus
    for data in {run.data for run in planned}:
        manifest = known_corpus(data, results.corpora)
        if manifest is not None:
            manifests.add(manifest)
    # If the pointer is lost, only the results name the corpus. `ablate run` writes the pointer
    # again.
    for run in planned:
        result = none_if_unreadable(results.run(run.id).read_result)
        if result is not None and results.has_corpus(result.corpus):
            manifests.add(results.corpus(result.corpus) / MANIFEST)
    return sorted(manifests)


def _check_resume(
    planned: Runs, row: Row, results: Results, device: Device, steps: int
) -> _Resumed:
    """Train a few steps with and without an interruption, and compare the results."""
    from ablate.workers.resume_check import check_resume

    study, run = planned.study, planned.of(row)[0]
    chosen = torch_device(device)
    corpus = study.prepare(run.data, results.corpora, functools.partial(echo, err=True))
    # With the micro-batch of a launch, because the order of sums depends on the micro-batch.
    resources = Resources.model_validate({"device": chosen.type})
    demand = Demand((row.config,), run.data.vocab_size, 1, resources)
    (slot, *_) = local_slots(demand)
    difference = check_resume(
        row.config,
        run.seed,
        study.task,
        corpus,
        steps=steps,
        device=chosen,
        micro_batch_tokens=row.config.micro_batch_tokens
        or micro_batch(row.config, run.data.vocab_size, slot),
        sources=study.source.classes,
        task_class=study.custom_task,
    )
    return _Resumed(row.label, steps, chosen.type, difference)
