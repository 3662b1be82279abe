"""Lists and descriptions of corpora: as JSON values, and printed to a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from ablate.config.translation_data import NamedCorpus
from ablate.errors import StoreError
from ablate.formatting import size
from ablate.report.terminal import plain_table, print_wide
from ablate.store.corpora import MANIFEST
from ablate.store.records import CorpusManifest

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus, TokenSequences


def print_list(named: Sequence[Mapping[str, Any]], prepared: Sequence[Mapping[str, Any]]) -> None:
    """Print the named corpora, then the prepared ones."""
    table = plain_table("corpus", "directions", "train, dev, test", "from")
    for each in named:
        table.add_row(each["corpus"], ", ".join(each["directions"]), ", ".join(each["splits"]), Text(each["from"]))
    print_wide(table)
    console = Console(highlight=False, soft_wrap=True)
    if not prepared:
        console.print("\nNo corpus is prepared here yet.")
        return
    console.print()
    table = plain_table("prepared", "corpus", "direction", "+pairs", "+V", "+on disk")
    for each in prepared:
        data = each["data"]
        row = (data["corpus"], data["direction"], f"{each['pairs']['train']:,}", f"{data['vocab_size']:,}")
        table.add_row(each["id"], *map(Text, row), size(each["bytes"]))
    print_wide(table)


def print_description(shown: Mapping[str, Any]) -> None:
    """Print the description of a prepared corpus (`listing.describe`)."""
    console, data = Console(highlight=False, soft_wrap=True, markup=False), shown["data"]
    console.print(f"corpus {shown['id']}: {data['corpus']}, {data['direction']}")
    # Fields depend on the task, so that the columns do too.
    fields = list(dict.fromkeys(field for split in shown["splits"].values() for field in split["tokens"]))
    heads = (head for field in fields for head in (f"+{field} tokens", "+mean", "+p95", "+max"))
    table = plain_table("split", "+pairs", *heads)
    for name, split in shown["splits"].items():
        cells = (f"{split['tokens'][field][key]:,}" for field in fields for key in ("total", "mean", "p95", "longest"))
        table.add_row(name, f"{split['pairs']:,}", *cells)
    print_wide(table)
    left_out = ", ".join(f"{count:,} {why}" for why, count in shown["left_out"].items())
    console.print(f"dropped from the training split: {left_out or 'nothing'}")
    for split, repairs in shown["repaired"].items():
        console.print(f"repaired in {split}: {', '.join(f'{count:,} {what}' for what, count in repairs.items())}")
    for line in shown["noticed"]:
        console.print(f"note: {line}")
    vocabulary = shown["vocabulary"]
    examples = " ".join(vocabulary["some"])
    console.print(
        f"vocabulary: {vocabulary['pieces']:,} pieces, {vocabulary['kind']}, {data['vocabulary']}: ... {examples}"
    )
    for texts in shown["sample"]:
        console.print("  " + "\n  -> ".join(texts))
    for name, split in shown["splits"].items():
        console.print(f"{name}: {_origin(split['from'] or {})}")


def _origin(about: Mapping[str, Any]) -> str:
    """Origin of a split: `train.en, train.de, SHA-256 of the text 1a2b..., 3c4d...`."""
    parts = []
    if "hub" in about:
        parts.append(f"hf:{about['hub']}@{about['commit']}, licence: {about['licence'] or 'none stated'}")
    parts += [about[key] for key in ("generated", "test set") if key in about]
    parts += [", ".join(about["files"])] if about.get("files") else []
    if about.get("sha256") and "generated" not in about:
        parts.append(f"SHA-256 of the text {', '.join(hash[:12] for hash in about['sha256'])}")
    return "; ".join(parts) or "unknown: prepared by the first version"


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
