"""`ablate verify`: check stored files against their hashes, and exact resumption on this
machine.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Annotated

import typer

from ablate.analysis.trials import with_trials
from ablate.cli.arguments import argument, flag, option
from ablate.cli.options import Device, StudyOptions, torch_device
from ablate.errors import EXIT_RUN_FAILED, UsageError
from ablate.formatting import plural
from ablate.launch import Demand
from ablate.launch.devices import local_slots, micro_batch
from ablate.store import Results, if_readable
from ablate.store.audit import Audit, audit
from ablate.store.corpora import MANIFEST, is_archived, known_corpus, names_other_files
from ablate.store.filesystem import check_filesystem
from ablate.store.jobs import Resources
from ablate.store.records import CorpusManifest
from ablate.streams import echo
from ablate.study import Row, Runs

EXAMPLE = "ablate verify study.yaml --stored"
STEPS = 4  # of the check of resumption


def command(
    study: Annotated[Path | None, argument("STUDY", "The study's YAML file.")] = None,
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
    filesystem: Annotated[
        Path | None, option("Check that DIR can hold a results root.", "DIR", file_okay=False)
    ] = None,
) -> None:
    """Re-hash every stored file; check that training resumes exactly."""
    of_training = [("device", device != "auto"), ("steps", steps)]
    if filesystem is not None:
        others = (*of_training, ("stored", stored))
        given = [*options.given(), *(f"--{name}" for name, value in others if value)]
        if study is not None or given:
            raise UsageError(
                f"--filesystem checks a folder and no study; leave out {study or given[0]}"
            )
        _check_filesystem(filesystem)
        return
    if study is None:
        raise UsageError("STUDY is missing: give a study's file, or --filesystem DIR")
    if stored and (given := [f"--{name}" for name, value in of_training if value]):
        raise UsageError(f"{given[0]} has no effect with --stored, which trains nothing")
    planned, root = options.open(study)
    faults = _stored(planned, root)
    if not stored:
        rows = planned.rows
        if not options.rows:  # One row checks the machine.
            rows = rows[:1]
        for row in rows:
            faults += _check_resume(planned, row, root, device, steps or STEPS)
    if faults:
        raise typer.Exit(EXIT_RUN_FAILED)


def _check_filesystem(folder: Path) -> None:
    """Check a folder, and print a line for each check."""
    passed = True
    for check in check_filesystem(folder):
        echo(f"{'ok    ' if check.passed else 'FAILED'}  {check.name}: {check.detail}")
        passed = passed and check.passed
    verdict = "can hold a results root" if passed else "cannot hold a results root of several hosts"
    echo(f"{folder}: {verdict}")
    if not passed:
        raise typer.Exit(EXIT_RUN_FAILED)


def _stored(planned: Runs, results: Results) -> int:
    """Check the stored files of runs and corpora; the number of faults."""
    report, runs, unfinished = Audit(), 0, 0
    for run in with_trials(planned):
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
    for line in report.faults:
        echo(line)
    checked = f"{plural(report.files, 'file')} of {plural(runs, 'run')}"
    if unfinished:
        checked += f", of which {unfinished} not finished,"
    prepared = f"{corpora} {'corpus' if corpora == 1 else 'corpora'}"
    verdict = f"{len(report.faults)} damaged" if report.faults else "all unchanged"
    echo(f"stored: {checked} and {prepared}: {verdict}")
    return len(report.faults)


def _manifests(planned: Runs, results: Results) -> list[Path]:
    """The manifests of the corpora that the study or its results name and that are here."""
    manifests: set[Path] = set()  # because most rows share one corpus
    for data in {run.data for run in planned}:
        manifest = known_corpus(data, results.corpora)
        if manifest is not None:
            manifests.add(manifest)
    # Without its pointer, which `run` writes again, the results alone know a corpus.
    for run in planned:
        result = if_readable(results.run(run.id).read_result)
        if result is not None and results.has_corpus(result.corpus):
            manifests.add(results.corpus(result.corpus) / MANIFEST)
    return sorted(manifests)


def _check_resume(planned: Runs, row: Row, results: Results, device: Device, steps: int) -> int:
    """Train a few steps with and without an interruption; 1 if the results differ, else 0."""
    from ablate.run.resume_check import check_resume

    study, run = planned.study, planned.of(row)[0]
    chosen = torch_device(device)
    corpus = study.prepare(run.data, results.corpora, echo)
    # The micro-batch that a launch would choose, because another one sums in another order.
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
        task_name=study.task_name,
    )
    compared = f"{steps} steps on {chosen.type}, with and without a stop after {steps // 2}"
    verdict = f"DIFFERENT: {difference}" if difference else "identical"
    echo(f"{row.label}: {compared}: {verdict}")
    return int(difference is not None)
