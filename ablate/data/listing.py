"""What there is to say of corpora: those that go by a name, those that are prepared, and what one holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.data import LAYOUTS
from ablate.data.corpus import Corpus, TokenSequences
from ablate.data.named import NAMED
from ablate.store.corpora import MANIFEST
from ablate.store.files import read_json

SAMPLE = 3  # pairs
_PERCENTILE = 95


def named_corpora() -> list[dict[str, Any]]:
    """The corpora that go by a name: their splits, directions, and where they are downloaded from."""
    found = []
    for name, layout in LAYOUTS.items():
        published = NAMED.get(name)
        where = f"hf:{published.repository}@{published.revision}" if published else "generated"
        splits = [layout.train, layout.dev, layout.test]
        found.append({"corpus": name, "directions": list(layout.directions), "splits": splits, "from": where})
    return found


def prepared_corpora(corpora: Path) -> list[dict[str, Any]]:
    """The corpora that are prepared, by their ids."""
    found = []
    for place in sorted(corpora.glob(f"[!.]*/{MANIFEST}")):
        manifest = read_json(place)
        if manifest is not None:
            size = sum(file.stat().st_size for file in place.parent.iterdir())
            found.append({
                "id": place.parent.name, "data": manifest["data"], "pairs": manifest["pairs"], "bytes": size,
            })  # fmt: skip
    return found


def portrait(corpus: Corpus) -> dict[str, Any]:
    """All that there is to say of a prepared corpus."""
    manifest = corpus.manifest
    splits = {}
    for name, pairs in manifest["pairs"].items():
        split = corpus.split(name)
        lengths = {field: _lengths(split[field]) for field in corpus.fields}
        splits[name] = {"pairs": pairs, "from": manifest.get("sources", {}).get(name), "tokens": lengths}
    train, tokenizer = corpus.split("train"), corpus.tokenizer
    some = range(0, len(train), -(-len(train) // SAMPLE))
    middle = range(tokenizer.vocab_size // 2, min(tokenizer.vocab_size // 2 + 12, tokenizer.vocab_size))
    return {
        "id": corpus.id,
        "data": manifest["data"],
        "splits": splits,
        "left_out": manifest["left_out"],
        "repaired": manifest.get("repaired", {}),
        "noticed": manifest.get("noticed", []),
        "vocabulary": {"pieces": tokenizer.vocab_size, "kind": tokenizer.kind, "some": tokenizer.pieces(list(middle))},
        "sample": [
            [corpus.tokenizer_of(field).decode([train[field][i].tolist()])[0] for field in corpus.fields] for i in some
        ],
        "sha256": manifest["files"],
    }


def _lengths(sequences: TokenSequences) -> dict[str, Any]:
    """Tokens of sentences, the end mark left out."""
    lengths = sequences.lengths - 1
    longest, high = int(lengths.max()), int(np.percentile(lengths, _PERCENTILE))
    return {"total": int(lengths.sum()), "mean": round(float(lengths.mean()), 1), "p95": high, "longest": longest}
