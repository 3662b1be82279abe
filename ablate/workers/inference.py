"""Use a trained run: load it, predict texts from texts, generate text, or fill masks."""

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
from ablate.workers.pipeline import load_model

CPU = torch.device("cpu")


@dataclass(frozen=True)
class LoadedRun:
    """A finished run.

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
        """The row's configuration, with the decoding fields that chose the weights."""
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
        row: one of the rows that share the run, whose weights, settings and test split are used; by
            default the row that began it.

    Raises:
        StoreError: the run is not finished, or the run or its corpus is damaged.
    """
    record = folder.read_run()
    result = folder.read_result()
    if record is None or result is None:
        raise StoreError(f"{folder.path}: is not a finished run")
    prepare(device)
    task = task_of(record.task, folder.sources)
    corpus = Corpus(_corpus(results, result, row))
    count = (row or record).config.average_checkpoints
    model = load_model(folder, record.config, corpus, result, count, device)
    return LoadedRun(record, task, corpus, model, result, row)


def _corpus(results: Results, result: Result, row: Row | None) -> Path:
    """The corpus that a row decoded, or another one of the run with another test split."""
    names = [result.corpus, *(decoding.corpus for decoding in result.decodings.values())]
    if row and row.decoding in result.decodings:
        names.insert(0, result.decodings[row.decoding].corpus)
    return results.corpus(next(filter(results.has_corpus, names), names[0]))


def predicting_task(folder: RunFolder) -> Task:
    """The task of a run, before its corpus and weights are read.

    Raises:
        UsageError: the task predicts nothing from a text.
        StoreError: the run is not finished.
    """
    record = folder.read_run()
    if record is None:
        raise StoreError(f"{folder.path}: is not a finished run")
    task = task_of(record.task, folder.sources)
    if not task.predicts:
        supported = [name for name, task in TASKS.items() if task.predicts]
        raise UsageError(
            f"run {folder.id} has the task {record.task}; only "
            f"{listed(supported)} is supported here"
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
        prompt: beginning of the texts; empty for the beginning of a document.
        count: number of texts.
        seed: seed of the first text; each further text has the next seed.
        settings: values that replace decoding fields of the row.
        row: see `load_run`.

    Raises:
        StoreError: the run is not finished, or the run or its corpus is damaged.
    """
    run = load_run(folder, results, row=row)
    config = run.config.model_copy(update=dict(settings))
    for number in range(seed, seed + count):
        yield prompt + generate_text(run.model, run.corpus.tokenizer, prompt, config, number)


def fill(
    folder: RunFolder, results: Results, text: str, top: int, row: Row | None = None
) -> FilledText:
    """Fill each `<mask>` of a text by the `top` candidates.

    Raises:
        UsageError: the text has no mask.
        StoreError: the run is not finished, or the run or its corpus is damaged.
        DataError: the text is longer than the model's positions.
    """
    if MASK_TEXT not in text:
        raise UsageError(f'the text has no {MASK_TEXT}, such as in "the {MASK_TEXT} sleeps"')
    run = load_run(folder, results, row=row)
    ids = encode_masked(run.corpus.tokenizer, text)
    refuse_too_long(run.config, "the text", len(ids))
    return fill_masks(run.model, run.corpus.tokenizer, ids, top)


def translate_text(
    folder: RunFolder,
    results: Results,
    sentences: Sequence[str],
    settings: Mapping[str, Any],
    row: Row | None = None,
    file: str = "standard input",
) -> list[str | None]:
    """Predict a text from each sentence, as the row predicts the test split.

    Args:
        folder: folder of the run.
        results: the results root.
        sentences: the texts to read.
        settings: values that replace decoding fields of the row.
        row: see `load_run`.
        file: name of the file of the sentences, for errors.

    Returns:
        A prediction for each sentence: empty for an empty one, None if it is not valid.

    Raises:
        StoreError: the run is not finished, or the run or its corpus is damaged.
        DataError: a sentence is longer than the model's positions.
    """
    run = load_run(folder, results, row=row)
    task = run.task
    assert isinstance(task, SequenceToSequence)
    sources = [task.as_read(sentence) for sentence in sentences]
    ids = run.corpus.tokenizer_of(task.source).encode(sources)
    for number, sentence in enumerate(ids, 1):
        refuse_too_long(run.config, f"{file}:{number}", len(sentence))
    # Without empty sentences, which leave the model nothing to attend to.
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
    return predictions


def refuse_too_long(
    config: ModelConfig, location: str, source: int, target: int | None = None
) -> None:
    """Refuse a sentence, or a pair, for which the model has too few positions.

    Args:
        config: fields of the model.
        location: file and line of the sentence, for the error.
        source: number of source tokens.
        target: number of target tokens; None for a source alone.

    Raises:
        DataError: the sentence is too long.
    """
    if config.positions_needed(source, target or 1) > config.max_positions:
        suffix = "" if target is None or config.has_encoder else f" after {source} of its source"
        raise too_long(config, location, source if target is None else target, suffix)


def too_long(config: ModelConfig, location: str, length: int, suffix: str = "") -> DataError:
    """The error for a text with too many tokens; `suffix` follows the number of tokens."""
    return DataError(
        f"{location}: has {length} tokens{suffix}, too many for "
        f"max_positions={config.max_positions} of the run"
    )
