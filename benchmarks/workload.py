"""The workload of all benchmarks: Multi30k's token ids, models of four sizes, batches of 4096
tokens.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ablate.config import RowConfig
from ablate.config.memory import CPU_MICRO_BATCH
from ablate.config.resolve import resolve_row
from ablate.data.corpus import Split, TokenSequences
from ablate.store import RunFolder
from ablate.tasks import TASKS
from ablate.training import Trainer

V = 8000
BATCH_TOKENS = 4096
SIZES: dict[str, dict[str, Any]] = {
    "XS": {"n_layers": 2, "d_model": 128, "d_ff": 512, "n_heads": 4},
    "S": {"n_layers": 3, "d_model": 256, "d_ff": 1024, "n_heads": 4},
    "base": {"n_layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8},
    "big": {"n_layers": 6, "d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3},
}
TRAIN, TEST = "train", "test_2016_flickr"


def row(size: str, precision: str = "fp32", **fields: Any) -> RowConfig:
    """Configuration of a model size; `fields` override it."""
    return resolve_row(
        {**SIZES[size], "batch_tokens": BATCH_TOKENS, "precision": precision, **fields}
    )


def split(ids: Path | None, name: str, pairs: int = 29_000, vocab_size: int = V) -> Split:
    """Load a split from a JSON file `{"train.en": [[id, ...], ...], "train.de": ...}`; without a
    file, draw random ids.

    Random sentences have Multi30k's mean length and spread.
    """
    if ids is not None:
        content = json.loads(ids.read_text())
        return Split(
            {
                "source": _sequences(content[f"{name}.en"]),
                "target": _sequences(content[f"{name}.de"]),
            }
        )
    random = np.random.default_rng(1)
    sides = []
    for _ in ("source", "target"):
        lengths = np.clip(random.normal(14, 5, pairs), 4, 40).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        sides.append(
            TokenSequences(
                random.integers(4, vocab_size, int(offsets[-1])).astype(np.uint32), offsets
            )
        )
    return Split(dict(zip(("source", "target"), sides, strict=True)))


def trainer(config: RowConfig, train: Split, device: str = "cpu", vocab_size: int = V) -> Trainer:
    """ablate's trainer on a corpus in memory, without evaluation and checkpoints."""
    corpus: Any = SimpleNamespace(
        tokenizer=SimpleNamespace(vocab_size=vocab_size), split=lambda name: train
    )
    folder = Path(tempfile.mkdtemp())
    on_gpu = device != "cpu"
    return Trainer(
        config, 1, TASKS["translation"], corpus, RunFolder(folder), device=torch.device(device),
        micro_batch_tokens=2 * config.batch_tokens if on_gpu else CPU_MICRO_BATCH, keep_checkpoints=1,
    )  # fmt: skip


def _sequences(sentences: list[list[int]]) -> TokenSequences:
    offsets = np.concatenate([[0], np.cumsum([len(s) for s in sentences])])
    return TokenSequences(
        np.fromiter((i for s in sentences for i in s), np.uint32, int(offsets[-1])), offsets
    )
