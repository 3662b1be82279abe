"""Lists and descriptions of corpora, as JSON values and on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ablate.errors import StoreError
from ablate.formatting import shares_text, size
from ablate.report.terminal import plain_table, print_wide, right, text_console
from ablate.store.corpora import MANIFEST
from ablate.store.records import CorpusManifest, Origin, Overlap

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus, TokenSequences
    from ablate.tasks import Task

SAMPLE = 3  # records
MAX_SAMPLE_LENGTH = 300  # tokens; longer documents are cut
PIECES = 12
_PERCENTILE = 95


def named_corpora(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """The corpora of the catalogue as JSON values, each with the first task that reads it."""
    corpora = []
    catalogues: dict[Any, Task] = {}
    for task in tasks:
        catalogues.setdefault(task.data_config, task)
    for data, task in catalogues.items():
        for name, corpus in data.catalogue.items():
            origin = corpus.hub.display_name if corpus.hub else corpus.origin
            sides = {"directions": list(corpus.directions), "splits": list(corpus.splits)}
            corpora.append({"corpus": name, "task": task.name, **sides, "from": origin})
    return corpora


def prepared_corpora(corpora: Path) -> list[dict[str, Any]]:
    """The prepared corpora with their sizes on disk, for scripts, in the order of their ids."""
    prepared = []
    for path in sorted(corpora.glob(f"[!.]*/{MANIFEST}")):
        try:
            manifest = CorpusManifest.read(path)
        except StoreError:  # damaged, or of another version
            continue
        if manifest is not None:
            bytes_on_disk = sum(file.stat().st_size for file in path.parent.iterdir())
            content = {"data": manifest.data, "pairs": manifest.records, "bytes": bytes_on_disk}
            prepared.append({"id": path.parent.name, **content})
    return prepared


def description_of(corpus: Corpus) -> dict[str, Any]:
    """Sources, sizes, lengths, vocabulary and sample records of a prepared corpus, for scripts."""
    manifest = corpus.manifest
    train = corpus.split("train")
    tokenizer = corpus.tokenizer
    splits = {}
    for name, count in manifest.records.items():
        split = corpus.split(name)
        origin = manifest.sources.get(name)
        splits[name] = {
            "pairs": count,
            "from": origin and origin.model_dump(mode="json"),
            "tokens": {field: _lengths(split[field]) for field in corpus.fields},
            "unknown": {field: split[field].unknown_share() for field in corpus.fields},
        }
    longest = manifest.data.get("max_length") or MAX_SAMPLE_LENGTH
    assert isinstance(longest, int)
    sample = []
    for i in range(0, len(train), -(-len(train) // SAMPLE)):
        texts: list[str] = []
        for field in corpus.fields:
            ids = train[field][i][:longest].tolist()
            texts += corpus.tokenizer_of(field).decode([ids])
        sample.append(texts)
    # Pieces from the middle of the vocabulary, because the first ones are very short.
    middle = range(tokenizer.vocab_size)[tokenizer.vocab_size // 2 :][:PIECES]
    pieces = tokenizer.pieces(list(middle))
    return {
        "id": corpus.id,
        "data": manifest.data,
        "splits": splits,
        "left_out": manifest.left_out,
        "repaired": manifest.repaired,
        "noticed": manifest.all_warnings,
        "overlap": _overlap_json(manifest.overlap, manifest.records["test"]),
        "dev_overlap": _overlap_json(manifest.dev_overlap, manifest.records["dev"]),
        "vocabulary": {"pieces": tokenizer.vocab_size, "kind": tokenizer.kind, "some": pieces},
        "sample": sample,
        "sha256": manifest.files,
    }


def _lengths(sequences: TokenSequences) -> dict[str, float]:
    """Lengths of sequences in tokens, without EOS; `p95` is the 95th percentile."""
    import numpy as np  # not for `ablate data --help`

    lengths = sequences.lengths - 1  # `lengths` counts EOS
    return {
        "total": int(lengths.sum()),
        "mean": round(float(lengths.mean()), 1),
        "p95": int(np.percentile(lengths, _PERCENTILE)),
        "longest": int(lengths.max()),
    }


# On a terminal


def print_list(
    catalogue: Iterable[Mapping[str, Any]], prepared: Iterable[Mapping[str, Any]]
) -> None:
    """Print the corpora of the catalogue, then the prepared corpora."""
    table = plain_table("corpus", "task", "directions", "train, dev, test", "from")
    for corpus in catalogue:
        directions = ", ".join(corpus["directions"])
        splits = ", ".join(corpus["splits"])
        table.add_row(corpus["corpus"], corpus["task"], directions, splits, Text(corpus["from"]))
    print_wide(table)
    console = text_console()
    if not prepared:
        console.print("\nNo corpus is prepared here yet.")
        return
    console.print()
    amount_columns = map(right, ("records", "V", "on disk"))
    table = plain_table("prepared", "corpus", "direction", *amount_columns)
    for corpus in prepared:
        data = corpus["data"]
        records = corpus["pairs"]["train"]
        # Only translation has a direction.
        settings = (str(data["corpus"]), str(data.get("direction") or ""))
        amounts = (f"{records:,}", f"{data['vocab_size']:,}", size(corpus["bytes"]))
        table.add_row(corpus["id"], *map(Text, settings), *amounts)
    print_wide(table)


def print_description(
    description: Mapping[str, Any], manifest: CorpusManifest, labels: Sequence[str]
) -> None:
    """Print the description of a prepared corpus."""
    console = text_console()
    splits = description["splits"]
    names = [str(manifest.data["corpus"])]
    if direction := manifest.data.get("direction"):
        names.append(str(direction))
    console.print(f"corpus {description['id']}: {', '.join(names)}")
    # The columns depend on the fields of the task.
    heads = ["records"]
    for field in splits["train"]["tokens"]:
        heads += [f"{field} tokens", "mean", "p95", "max"]
    table = plain_table("split", *map(right, heads))
    for name, split in splits.items():
        cells = [f"{split['pairs']:,}"]
        for lengths in split["tokens"].values():
            cells += map("{:,}".format, lengths.values())
        table.add_row(name, *cells)
    print_wide(table)
    unknown = {}
    for name, split in splits.items():
        for field, share in split["unknown"].items():
            unknown[f"{name} {field}"] = share
    console.print(f"unknown tokens: {shares_text(unknown)}")
    left_out = _counts(manifest.left_out) or "nothing"
    console.print(f"dropped from the training split: {left_out}")
    for split, repairs in manifest.repaired.items():
        console.print(f"repaired in {split}: {_counts(repairs)}")
    for split, shares in manifest.overlap_shares.items():
        console.print(f"{split} text that occurs in the training split: {shares_text(shares)}")
    for line in description["noticed"]:
        console.print(f"note: {line}")
    vocabulary = description["vocabulary"]
    tokenizer = vocabulary["kind"]
    if "vocabulary" in manifest.data:
        tokenizer += f", {manifest.data['vocabulary']}"
    pieces = " ".join(vocabulary["some"])
    console.print(f"vocabulary: {vocabulary['pieces']:,} pieces, {tokenizer}: ... {pieces}")
    for texts in description["sample"]:
        if len(texts) > 1:
            texts = map("{}: {}".format, labels, texts)
        console.print("  " + "\n  -> ".join(texts))
    for name in manifest.records:
        console.print(f"{name}: {_origin_text(manifest.sources.get(name) or Origin())}")


def _counts(counts: Mapping[str, int]) -> str:
    """`3 too long, 1 empty`."""
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())


def _overlap_json(overlap: Overlap | None, n_records: int) -> dict[str, Any] | None:
    """Counts and shares of the records of a split (`n_records` in all) that occur in the training
    split; None if they were not counted.
    """
    if overlap is None:
        return None
    return {**overlap.model_dump(by_alias=True), "shares": overlap.shares(n_records)}


def _origin_text(origin: Origin) -> str:
    """The origin of a split: `train.en, train.de, SHA-256 of the text 1a2b..., 3c4d...`."""
    facts = []
    if origin.hub is not None:
        facts.append(f"hf:{origin.hub}@{origin.commit}, license: {origin.licence or 'none stated'}")
    if origin.generated is not None:
        facts.append(f"generated by the {origin.generated.replace(' ', ' corpus, version ')}")
    if origin.test_set is not None:
        facts.append(origin.test_set)
    if origin.files:
        facts.append(", ".join(origin.files))
    if origin.sha256 and origin.generated is None:
        facts.append(f"SHA-256 of the text {', '.join(hash[:12] for hash in origin.sha256)}")
    return "; ".join(facts) or "unknown: prepared by the first version"
