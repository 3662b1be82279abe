"""Use a trained run: load it, predict a text for each text, continue a prompt, or fill masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ablate.config import ModelConfig, RowConfig
from ablate.data.corpus import Corpus
from ablate.decoding import translate
from ablate.decoding.fill import MASK_TEXT, FilledText, encode_masked, fill_masks
from ablate.decoding.generate import generate_text
from ablate.errors import DataError, StoreError, UsageError, listed
from ablate.kernels.device import prepare
from ablate.model import Transformer
from ablate.store import Results, RunFolder
from ablate.store.records import Result, RunRecord
from ablate.study import Row
from ablate.tasks import TASKS, SequenceToSequence, Task, task_of
from ablate.workers.run_inputs import load_model

CPU = torch.device("cpu")


@dataclass(frozen=True)
class LoadedRun:
    """A finished run, with its model.

    record: the settings of the run.
    model: the model in eval mode, with the weights of the chosen step.
    row: the row whose decoding settings are used; None for the row that began the run.
    """

    record: RunRecord
    task: Task
    corpus: Corpus
    model: Transformer
    result: Result
    row: Row | None = None

    @property
    def config(self) -> RowConfig:
        """The configuration of the row; its decoding fields have determined which weights are
        loaded.
        """
        return self.row.config if self.row else self.record.config


def load_run(
    folder: RunFolder,
    results: Results,
    device: torch.device = CPU,
    row: Row | None = None,
) -> LoadedRun:
    """Load a finished run.

    Args:
        folder: folder of the run.
        results: the results root.
        device: device of the model.
        row: one of the rows that share the run. Its number of averaged checkpoints, its decoding
            settings and its corpus are used. By default, the row that began the run.

    Raises:
        StoreError: the run is not finished, or the run or its corpus is damaged.
    """
    record = folder.read_run()
    result = folder.read_result()
    if record is None or result is None:
        raise StoreError(f"{folder.path}: is not a finished run")
    prepare(device)
    task = task_of(record.task, folder.sources)
    corpus = Corpus(_corpus_folder(results, result, row))
    count = (row or record).config.average_checkpoints
    model = load_model(folder, record.config, corpus, result, count, device)
    return LoadedRun(record, task, corpus, model, result, row)


def _corpus_folder(results: Results, result: Result, row: Row | None) -> Path:
    """The folder of the first prepared corpus among: the corpus that the row decoded, the corpus of
    the training, and the corpora of all decodings. They differ only in their test splits.
    """
    ids = [result.corpus, *(decoding.corpus for decoding in result.decodings.values())]
    if row and row.decoding in result.decodings:
        ids.insert(0, result.decodings[row.decoding].corpus)
    for id in ids:
        if results.has_corpus(id):
            return results.corpus(id)
    return results.corpus(ids[0])  # not prepared: opening it raises the error


def predicting_task(folder: RunFolder) -> Task:
    """The task of a run; refused early, before the corpus and weights are read.

    Raises:
        UsageError: `ablate predict` does not support the task.
        StoreError: the run is not finished.
    """
    record = folder.read_run()
    if record is None:
        raise StoreError(f"{folder.path}: is not a finished run")
    task = task_of(record.task, folder.sources)
    if not task.predicts:
        supported = [name for name, task in TASKS.items() if task.predicts]
        raise UsageError(
            f"run {folder.id} has the task {record.task}, which cannot predict from a text; "
            f"supported: {listed(supported)}"
        )
    return task


def generated_texts(
    folder: RunFolder,
    results: Results,
    prompt: str,
    count: int,
    seed: int,
    settings: Mapping[str, Any],
    row: Row | None = None,
) -> Iterator[str]:
    """Yield texts that continue a prompt.

    Args:
        folder: folder of the run.
        results: the results root.
        prompt: text to continue; if empty, documents are generated from their beginning.
        count: number of texts.
        seed: seed of the first text; each later text has the next seed.
        settings: values that replace decoding fields of the row.
        row: see `load_run`.

    Raises:
        StoreError: the run is not finished, or the run or its corpus is damaged.
    """
    run = load_run(folder, results, row=row)
    config = run.config.model_copy(update=dict(settings))
    for text_seed in range(seed, seed + count):
        yield prompt + generate_text(run.model, run.corpus.tokenizer, prompt, config, text_seed)


def fill(
    folder: RunFolder, results: Results, text: str, top: int, row: Row | None = None
) -> FilledText:
    """Predict the `top` most probable tokens for each `<mask>` of a text.

    Raises:
        UsageError: the text has no mask.
        StoreError: the run is not finished, or the run or its corpus is damaged.
        DataError: the text has more tokens than the model has positions.
    """
    if MASK_TEXT not in text:
        raise UsageError(
            f'the text has no {MASK_TEXT}; an example with it: "the {MASK_TEXT} sleeps"'
        )
    run = load_run(folder, results, row=row)
    ids = encode_masked(run.corpus.tokenizer, text)
    refuse_too_long(run.config, "the text", len(ids))
    return fill_masks(run.model, run.corpus.tokenizer, ids, top)


@dataclass(frozen=True)
class Predictions:
    """Predictions for sentences.

    texts: a prediction for each sentence: empty for an empty sentence, and None if the prediction
        is not valid (such as an unbalanced parse).
    unknown: the text of the unknown tokens of each sentence.
    """

    texts: list[str | None]
    unknown: list[list[str]]


def translate_text(
    folder: RunFolder,
    results: Results,
    sentences: Sequence[str],
    settings: Mapping[str, Any],
    row: Row | None = None,
    file: str = "standard input",
) -> Predictions:
    """Predict a text for each sentence, such as a translation, as the row predicts the test split.
    `settings` replace decoding fields of the row; `file` is the name of the file of the sentences,
    for errors.

    Raises:
        StoreError: the run is not finished, or the run or its corpus is damaged.
        DataError: a sentence has more tokens than the model has positions.
    """
    run = load_run(folder, results, row=row)
    task = run.task
    assert isinstance(task, SequenceToSequence)
    sources = [task.as_read(sentence) for sentence in sentences]
    source_tokenizer = run.corpus.tokenizer_of(task.source)
    ids = source_tokenizer.encode(sources)
    for number, sentence in enumerate(ids, 1):
        refuse_too_long(run.config, f"{file}:{number}", len(sentence))
    # Empty sentences are left out: the model would have nothing to attend to.
    nonempty = [i for i, sentence in enumerate(ids) if sentence]
    decoding = run.config.model_copy(update=dict(settings))
    tokenizer = run.corpus.tokenizer_of(task.target)
    constrain = task.constrain(run.corpus, decoding)
    texts = translate(
        run.model, tokenizer, [ids[i] for i in nonempty], decoding, CPU, constrain=constrain
    )
    predictions: list[str | None] = [""] * len(ids)
    for i, text in zip(nonempty, texts, strict=True):
        predictions[i] = task.readable(text, sources[i])
    return Predictions(predictions, list(map(source_tokenizer.unknown, sources)))


def refuse_too_long(
    config: ModelConfig, location: str, source: int, target: int | None = None
) -> None:
    """Refuse a source, or a pair of source and target, for which the model has too few positions.
    `target` is None without a target.

    Raises:
        DataError: the text is too long.
    """
    if config.positions_needed(source, target or 1) > config.max_positions:
        suffix = ""
        if target is not None and not config.has_encoder:  # one sequence: source, then target
            suffix = f" after {source} of its source"
        raise too_long(config, location, source if target is None else target, suffix)


def too_long(config: ModelConfig, location: str, length: int, suffix: str = "") -> DataError:
    """Make the error for a text with too many tokens. `suffix` is printed after their number."""
    return DataError(
        f"{location}: has {length} tokens{suffix}, too many for "
        f"max_positions={config.max_positions} of the run"
    )
