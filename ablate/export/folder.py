"""`ablate export`: a run's folder in, a folder of another library's files out, whole or not at all."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ablate
from ablate.config import DecodingConfig, ModelConfig
from ablate.config.identity import NOT_IDENTITY
from ablate.errors import StoreError, UsageError
from ablate.export.forms import FORMS, Form
from ablate.export.source import Source
from ablate.run.inference import LoadedRun, load_run
from ablate.store import Results, RunFolder
from ablate.store.files import sync_file, sync_folder, write_json

ABOUT = "ablate.json"


def export(run: RunFolder, results: Results, target: str, folder: Path) -> str:
    """Write a finished run for another library; its name of the model.

    Raises:
        UsageError: the folder is taken, the model cannot be written so (every reason), or a package is missing.
        StoreError: the run or its corpus is not whole.
    """
    _refuse_taken(folder)
    record = run.read_run()
    if record is None:
        raise StoreError(f"{run.run}: is missing")
    config = record.config
    form = FORMS[target][config.architecture]
    _refuse(run, config, target, form)
    opened = load_run(run, results)
    if opened.corpus.tokenizer_of("source") is not opened.corpus.tokenizer:
        raise UsageError(f"run {run.id} cannot be exported to {target}: it has data.vocabulary=separate")
    weights = {name: tensor.detach().float() for name, tensor in opened.model.state_dict().items()}
    source = Source(
        config, weights, opened.corpus.tokenizer, opened.task.data_config.model_validate(record.data).labels
    )

    def write(place: Path) -> None:
        form.write(source, place)
        write_json(place / ABOUT, _about(opened, target), durable=False)

    _whole_or_not(folder, write)
    return form.name


def _refuse(run: RunFolder, config: ModelConfig, target: str, form: Form) -> None:
    reasons = form.refusals(config)
    if reasons:
        raise UsageError(*(f"run {run.id} cannot be exported to {target}: it has {reason}" for reason in reasons))
    if form.needs is not None and importlib.util.find_spec(form.needs) is None:
        raise UsageError(f"--to {target}: {form.needs} is not installed; pip install 'ablate-transformer[{target}]'")


def _about(opened: LoadedRun, target: str) -> dict[str, Any]:
    """What tells an exported model's origin. How some study decodes it is no part of it, nor is any machine."""
    decoding, config = set(DecodingConfig.model_fields), opened.config.model_dump(exclude=set(NOT_IDENTITY))
    return {
        "ablate": ablate.__version__,
        "target": target,
        "run": opened.record.id,
        "seed": opened.record.seed,
        "corpus": opened.corpus.id,
        "direction": opened.record.data["direction"],
        "step": opened.result.chosen_step,
        "weights_sha256": opened.result.weights.sha256 if opened.result.weights else None,
        "config": {name: value for name, value in config.items() if name not in decoding},
    }


def _refuse_taken(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        what = "is not empty" if folder.is_dir() else "is not a folder"
        raise UsageError(f"{folder}: {what}; give another folder")


def _whole_or_not(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a folder beside its place, and rename it when it is whole and on the disk."""
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir()
    except OSError as error:
        error.filename = str(folder)  # what was asked for, and not what only we know of
        raise
    try:
        write(temporary)
        for file in temporary.iterdir():
            sync_file(file)
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_folder(folder.parent)
