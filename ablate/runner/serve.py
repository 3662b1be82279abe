"""Use a trained run: text in, text out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ablate.config import DecodingConfig, RowConfig
from ablate.data.corpus import Corpus
from ablate.decoding import translate
from ablate.errors import DataError, StoreError
from ablate.runner.carry_out import load_model
from ablate.store import Results, RunFolder
from ablate.store.files import read_json


def translate_text(folder: RunFolder, results: Results, sentences: Sequence[str], beam: int, alpha: float) -> list[str]:
    """Translate sentences with the weights that a run chose; empty ones stay empty.

    Raises:
        StoreError: the run or its corpus is not whole.
        DataError: a sentence is longer than the model's positions.
    """
    run, result = read_json(folder.run), folder.read_result()
    if run is None or result is None:
        raise StoreError(f"{folder.path}: is not a finished run")
    config, corpus = RowConfig(**run["config"]), Corpus(results.corpora / result["corpus"])
    device = torch.device("cpu")
    model = load_model(folder, config, corpus, result, 1, device)
    ids = corpus.tokenizer.encode([sentence.strip() for sentence in sentences])
    for number, sentence in enumerate(ids, 1):
        if config.places(len(sentence), 1) > config.max_positions:
            raise DataError(
                f"standard input:{number}: has {len(sentence)} tokens, too many for max_positions="
                f"{config.max_positions} of the run"
            )
    full = [i for i, sentence in enumerate(ids) if sentence]
    decoding = DecodingConfig(beam=beam, alpha=alpha)
    texts = translate(model, corpus.tokenizer, [ids[i] for i in full], decoding, device)
    found = dict(zip(full, texts, strict=True))
    return [found.get(i, "") for i in range(len(ids))]
