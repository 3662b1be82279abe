"""Export a finished run into a folder with the files of another library."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ablate
from ablate.config import DecodingConfig
from ablate.config.identity import NOT_IDENTITY
from ablate.errors import Fault, StoreError, UsageError, listed
from ablate.export.huggingface import SEARCHES, penalty_note
from ablate.export.target import Target, TrainedModel
from ablate.export.targets import exportable_tasks, find_target, task_kind
from ablate.formatting import first_few
from ablate.store import Results, RunFolder
from ablate.store.files import sync_file, sync_folder, write_json
from ablate.study import Row
from ablate.workers.inference import LoadedRun, load_run

ABOUT = "ablate.json"


def export_run(
    run: RunFolder,
    results: Results,
    library: str,
    folder: Path,
    row: Row | None = None,
    rows: Sequence[Row] = (),
) -> tuple[str, str]:
    """Write a finished run, with the weights of a row, as a model of another library.

    Args:
        run: folder of the run.
        results: the results root.
        library: name of the library, a key of TARGETS.
        folder: a new or empty folder. It is written completely or not at all.
        row: the row whose weights and decoding settings are exported; None for the settings with
            which the run began.
        rows: rows of the study, of which a refusal names those that can be exported.

    Returns:
        The name of the model in the library, and a note on a decoding setting of the row that the
        model cannot have (empty if there is none).

    Raises:
        UsageError: the folder is in use, the configuration is not supported, or a package is
            missing.
        StoreError: the run or its corpus is incomplete.
    """
    _check_folder(folder)
    record = run.read_run()
    if record is None:
        raise StoreError(f"{run.run}: is missing")
    config = record.config
    name = f'row "{row.label}" seed {record.seed}' if row else f"run {run.id}"
    target = find_target(record.task, config, library)
    if target is None:
        raise UsageError(
            f"{name} has the task {record.task}; "
            f"only {listed(exportable_tasks(library))} is supported by --to {library}"
        )
    # Before the weights are loaded, which takes seconds.
    if reasons := target.violations(config):
        start = f"{name} cannot be exported to {library}: it has"
        *others, last = (f"{start} {reason}" for reason in reasons)
        remedy = _exportable(rows, record.task, library)
        raise UsageError(*others, Fault(last, remedy=remedy))
    _check_package(library, target)
    opened = load_run(run, results, row=row)
    # Every target has one vocabulary for source and target.
    vocabularies = {id(opened.corpus.tokenizer_of(field)) for field in opened.corpus.fields}
    if vocabularies != {id(opened.corpus.tokenizer)}:
        raise UsageError(f"{name} cannot be exported to {library}: it has data.vocabulary=separate")
    weights = {name: tensor.detach().float() for name, tensor in opened.model.state_dict().items()}
    data = opened.task.data_config.model_validate(record.data)
    model = TrainedModel(
        opened.config, weights, opened.corpus.tokenizer, data.labels, task_kind(record.task)
    )

    def write(path: Path) -> None:
        target.write(target, model, path)
        # Not durable, because `_write_atomically` flushes all files before the rename.
        write_json(path / ABOUT, _origin(opened, library), durable=False)

    _write_atomically(folder, write)
    has_search = library == "huggingface" and model.kind in SEARCHES
    return target.name, penalty_note(opened.config) if has_search else ""


def _check_package(library: str, target: Target) -> None:
    # find_spec finds the package without importing it.
    if target.package is not None and importlib.util.find_spec(target.package) is None:
        install = f"pip install {library}"
        raise UsageError(f"--to {library}: {target.package} is not installed; {install}")


def _exportable(rows: Sequence[Row], task: str, library: str) -> str:
    """A remedy: the rows that can be exported to a library; empty without rows."""
    labels = []
    for row in rows:
        target = find_target(task, row.config, library)
        if target is not None and not target.violations(row.config):
            labels.append(row.label)
    if labels:
        return f"rows that can be exported: {first_few(labels)}"
    return "no row of the study can be exported" if rows else ""


def _origin(opened: LoadedRun, library: str) -> dict[str, Any]:
    """The provenance of an exported model: run, corpus and settings of the model."""
    origin: dict[str, Any] = {
        "ablate": ablate.__version__,
        "target": library,
        "run": opened.record.id,
        "seed": opened.record.seed,
        "corpus": opened.corpus.id,
    }
    if "direction" in opened.record.data:
        origin["direction"] = opened.record.data["direction"]
    weights = opened.result.weights
    averaged = opened.result.kept_steps[-opened.config.average_checkpoints :]
    excluded = {*NOT_IDENTITY, *DecodingConfig.model_fields}
    return origin | {
        "step": opened.result.chosen_step,
        # The average of several checkpoints is not a file, so it has no hash.
        "averaged_steps": averaged,
        "weights_sha256": weights.sha256 if weights and len(averaged) == 1 else None,
        "config": opened.config.model_dump(exclude=excluded),
    }


def _check_folder(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        problem = "is not empty" if folder.is_dir() else "is not a folder"
        raise UsageError(f"{folder}: {problem}; choose another folder")


def _write_atomically(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a temporary folder, and rename it when all of its files are on disk."""
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir()
        write(temporary)
        for file in temporary.iterdir():
            sync_file(file)
        temporary.replace(folder)  # atomic: no incomplete model has the final name
    except OSError as error:
        error.filename = str(folder)  # the user does not know the temporary folder
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_folder(folder.parent)
