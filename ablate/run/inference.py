"""Use a trained run: what it is and its weights, and text in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ablate.config import DecodingConfig, ModelConfig, RowConfig
from ablate.data.corpus import Corpus
from ablate.decoding import translate
from ablate.errors import DataError, StoreError
from ablate.model import Transformer
from ablate.run.pipeline import load_model
from ablate.store import Results, RunFolder
from ablate.store.corpora import is_prepared
from ablate.store.files import read_json

CPU = torch.device("cpu")


@dataclass(frozen=True)
class LoadedRun:
    """A finished run: what it is, what it was trained on, the weights that it chose, evaluating, and its result."""

    config: RowConfig
    corpus: Corpus
    model: Transformer
    result: dict[str, Any]


def open_run(folder: RunFolder, results: Results, device: torch.device = CPU) -> LoadedRun:
    """Load a finished run.

    Raises:
        StoreError: the run or its corpus is not whole.
    """
    run, result = read_json(folder.run), folder.read_result()
    if run is None or result is None:
        raise StoreError(f"{folder.path}: is not a finished run")
    config, corpus = RowConfig(**run["config"]), Corpus(_corpus(results, result))
    return LoadedRun(config, corpus, load_model(folder, config, corpus, result, 1, device), result)


def _corpus(results: Results, result: dict[str, Any]) -> Path:
    """The corpus that the run was trained on, or one of those that it translated: they share all but the test side."""
    names = [result["corpus"], *(decoding["corpus"] for decoding in result.get("decodings", {}).values())]
    there = [results.corpora / name for name in names if is_prepared(results.corpora / name)]
    return there[0] if there else results.corpus(names[0])


def translate_text(folder: RunFolder, results: Results, sentences: Sequence[str], beam: int, alpha: float) -> list[str]:
    """Translate sentences with the weights that a run chose; empty ones stay empty.

    Raises:
        StoreError: the run or its corpus is not whole.
        DataError: a sentence is longer than the model's positions.
    """
    opened = open_run(folder, results)
    tokenizer = opened.corpus.tokenizer
    ids = opened.corpus.tokenizer_of("source").encode([sentence.strip() for sentence in sentences])
    for number, sentence in enumerate(ids, 1):
        refuse_too_long(opened.config, f"standard input:{number}", len(sentence))
    full = [i for i, sentence in enumerate(ids) if sentence]
    decoding = DecodingConfig(beam=beam, alpha=alpha)
    texts = translate(opened.model, tokenizer, [ids[i] for i in full], decoding, CPU)
    found = dict(zip(full, texts, strict=True))
    return [found.get(i, "") for i in range(len(ids))]


def refuse_too_long(config: ModelConfig, where: str, source: int, target: int | None = None) -> None:
    """Refuse a source of so many tokens, or a target beside it, for which the model has too few positions.

    Raises:
        DataError: saying where it stands.
    """
    if config.places(source, target or 1) > config.max_positions:
        given = source if target is None else target
        beside = "" if target is None or config.has_encoder else f" after {source} of its source"
        raise DataError(
            f"{where}: has {given} tokens{beside}, too many for max_positions={config.max_positions} of the run"
        )
