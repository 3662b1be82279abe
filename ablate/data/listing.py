"""Summaries of corpora as JSON values: the named ones, the prepared ones, and the content of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.translation_data import NamedCorpus
from ablate.data.corpus import Corpus, TokenSequences
from ablate.errors import StoreError
from ablate.store.corpora import MANIFEST
from ablate.store.records import CorpusManifest

SAMPLE = 3  # records
_PERCENTILE = 95


def named_corpora(corpora: Mapping[str, NamedCorpus]) -> list[dict[str, Any]]:
    """The corpora known by name: splits, directions and origin."""
    return [
        {
            "corpus": name,
            "directions": list(corpus.directions),
            "splits": [corpus.train, corpus.dev, corpus.test],
            "from": f"hf:{corpus.repository}@{corpus.revision}" if corpus.repository else "generated",
        }
        for name, corpus in corpora.items()
    ]


def prepared_corpora(corpora: Path) -> list[dict[str, Any]]:
    """The prepared corpora, in the order of their ids."""
    summaries = []
    for path in sorted(corpora.glob(f"[!.]*/{MANIFEST}")):
        try:
            manifest = CorpusManifest.read(path)
        except StoreError:  # damaged, or of another version: not usable here
            continue
        if manifest is not None:
            size = sum(file.stat().st_size for file in path.parent.iterdir())
            summaries.append({
                "id": path.parent.name, "data": manifest.data, "pairs": manifest.pairs, "bytes": size,
            })  # fmt: skip
    return summaries


def describe(corpus: Corpus) -> dict[str, Any]:
    """Sources, sizes, lengths, vocabulary and sample records of a prepared corpus."""
    manifest = corpus.manifest
    splits = {}
    for name, pairs in manifest.pairs.items():
        split = corpus.split(name)
        lengths = {field: _lengths(split[field]) for field in corpus.fields}
        splits[name] = {"pairs": pairs, "from": manifest.sources.get(name), "tokens": lengths}
    train, tokenizer = corpus.split("train"), corpus.tokenizer
    sampled = range(0, len(train), -(-len(train) // SAMPLE))
    # Pieces from the middle of the vocabulary: the first ones are very short.
    middle = range(tokenizer.vocab_size // 2, min(tokenizer.vocab_size // 2 + 12, tokenizer.vocab_size))
    return {
        "id": corpus.id,
        "data": manifest.data,
        "splits": splits,
        "left_out": manifest.left_out,
        "repaired": manifest.repaired,
        "noticed": manifest.noticed,
        "vocabulary": {"pieces": tokenizer.vocab_size, "kind": tokenizer.kind, "some": tokenizer.pieces(list(middle))},
        "sample": [
            [corpus.tokenizer_of(field).decode([train[field][i].tolist()])[0] for field in corpus.fields]
            for i in sampled
        ],
        "sha256": manifest.files,
    }


def _lengths(sequences: TokenSequences) -> dict[str, Any]:
    """Statistics of lengths in tokens, without EOS."""
    lengths = sequences.lengths - 1
    longest, high = int(lengths.max()), int(np.percentile(lengths, _PERCENTILE))
    return {"total": int(lengths.sum()), "mean": round(float(lengths.mean()), 1), "p95": high, "longest": longest}
