"""Lists and descriptions of corpora: as JSON values, and printed to a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from ablate.errors import StoreError
from ablate.formatting import shares_text, size
from ablate.report.terminal import plain_table, print_wide, text_console
from ablate.store.corpora import MANIFEST
from ablate.store.records import CorpusManifest, Origin

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus, TokenSequences
    from ablate.tasks import Task

SAMPLE = 3  # records
LONGEST_SAMPLE = 300  # tokens of a document, whose length has no limit
_PERCENTILE = 95


@dataclass(frozen=True)
class NamedSummary:
    """A corpus known by name: its task, its directions if it has any, its splits and its origin."""

    name: str
    task: str
    directions: tuple[str, ...]
    splits: tuple[str, str, str]
    origin: str

    def as_json(self) -> dict[str, Any]:
        """The summary for scripts."""
        directions, splits = list(self.directions), list(self.splits)
        return {
            "corpus": self.name,
            "task": self.task,
            "directions": directions,
            "splits": splits,
            "from": self.origin,
        }


@dataclass(frozen=True)
class PreparedSummary:
    """A prepared corpus: its id, its manifest, and its size on disk in bytes."""

    id: str
    manifest: CorpusManifest
    bytes: int

    def as_json(self) -> dict[str, Any]:
        """The summary for scripts."""
        return {
            "id": self.id,
            "data": self.manifest.data,
            "pairs": self.manifest.pairs,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class Lengths:
    """Lengths of the sequences of one text field in tokens, without EOS; `p95` is the 95th
    percentile.
    """

    total: int
    mean: float
    p95: int
    longest: int


@dataclass(frozen=True)
class Description:
    """The content of a prepared corpus.

    lengths: by split and by text field.
    vocab_size: V.
    tokenizer: kind of the vocabulary.
    pieces: some of the vocabulary.
    sample: texts of some training records, by field.
    """

    id: str
    manifest: CorpusManifest
    lengths: Mapping[str, Mapping[str, Lengths]]
    vocab_size: int
    tokenizer: str
    pieces: tuple[str, ...]
    sample: tuple[tuple[str, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """The description for scripts."""
        manifest = self.manifest
        return {
            "id": self.id,
            "data": manifest.data,
            "splits": {
                split: {
                    "pairs": count,
                    "from": manifest.sources[split].model_dump(mode="json")
                    if split in manifest.sources
                    else None,
                    "tokens": {
                        field: asdict(lengths) for field, lengths in self.lengths[split].items()
                    },
                }
                for split, count in manifest.pairs.items()
            },
            "left_out": manifest.left_out,
            "repaired": manifest.repaired,
            "noticed": manifest.noticed,
            "overlap": _overlap_json(manifest),
            "vocabulary": {
                "pieces": self.vocab_size,
                "kind": self.tokenizer,
                "some": list(self.pieces),
            },
            "sample": [list(texts) for texts in self.sample],
            "sha256": manifest.files,
        }


def named_corpora(tasks: Iterable[Task]) -> list[NamedSummary]:
    """The corpora known by name, each with the first task that reads it."""
    summaries = []
    seen = set()
    for task in tasks:
        if task.data_config in seen:
            continue
        seen.add(task.data_config)
        for name, named in task.data_config.catalogue.items():
            origin = named.hub.display_name if named.hub else named.origin
            directions = tuple(named.directions)
            summaries.append(NamedSummary(name, task.name, directions, named.splits, origin))
    return summaries


def prepared_corpora(corpora: Path) -> list[PreparedSummary]:
    """The prepared corpora, in the order of their ids."""
    summaries = []
    for path in sorted(corpora.glob(f"[!.]*/{MANIFEST}")):
        try:
            manifest = CorpusManifest.read(path)
        except StoreError:  # damaged, or of another version: not usable here
            continue
        if manifest is not None:
            bytes_on_disk = sum(file.stat().st_size for file in path.parent.iterdir())
            summaries.append(PreparedSummary(path.parent.name, manifest, bytes_on_disk))
    return summaries


def describe(corpus: Corpus) -> Description:
    """Sources, sizes, lengths, vocabulary and sample records of a prepared corpus."""
    lengths = {}
    for name in corpus.manifest.pairs:
        split = corpus.split(name)
        lengths[name] = {field: _lengths(split[field]) for field in corpus.fields}
    train, tokenizer = corpus.split("train"), corpus.tokenizer
    longest = corpus.manifest.data.get("max_length") or LONGEST_SAMPLE
    assert isinstance(longest, int)
    sampled = range(0, len(train), -(-len(train) // SAMPLE))
    # Pieces from the middle of the vocabulary: the first ones are very short.
    middle = range(
        tokenizer.vocab_size // 2, min(tokenizer.vocab_size // 2 + 12, tokenizer.vocab_size)
    )
    sample = (
        tuple(
            corpus.tokenizer_of(field).decode([train[field][i][:longest].tolist()])[0]
            for field in corpus.fields
        )
        for i in sampled
    )
    return Description(
        corpus.id,
        corpus.manifest,
        lengths,
        tokenizer.vocab_size,
        tokenizer.kind,
        tuple(tokenizer.pieces(list(middle))),
        tuple(sample),
    )


def _lengths(sequences: TokenSequences) -> Lengths:
    lengths = sequences.lengths - 1  # `lengths` counts EOS
    high, longest = int(np.percentile(lengths, _PERCENTILE)), int(lengths.max())
    return Lengths(int(lengths.sum()), round(float(lengths.mean()), 1), high, longest)


# On a terminal


def print_list(named: Sequence[NamedSummary], prepared: Sequence[PreparedSummary]) -> None:
    """Print the named corpora, then the prepared ones."""
    table = plain_table("corpus", "task", "directions", "train, dev, test", "from")
    for one in named:
        table.add_row(
            one.name, one.task, ", ".join(one.directions), ", ".join(one.splits), Text(one.origin)
        )
    print_wide(table)
    console = text_console()
    if not prepared:
        console.print("\nNo corpus is prepared here yet.")
        return
    console.print()
    table = plain_table("prepared", "corpus", "direction", "+records", "+V", "+on disk")
    for each in prepared:
        data, records = each.manifest.data, each.manifest.pairs["train"]
        # Only translation has a direction.
        settings = (str(data["corpus"]), str(data.get("direction") or ""))
        table.add_row(
            each.id,
            *map(Text, settings),
            f"{records:,}",
            f"{data['vocab_size']:,}",
            size(each.bytes),
        )
    print_wide(table)


def print_description(shown: Description) -> None:
    """Print the description of a prepared corpus."""
    console, manifest = text_console(), shown.manifest
    names = (manifest.data["corpus"], manifest.data.get("direction"))
    console.print(f"corpus {shown.id}: {', '.join(str(name) for name in names if name)}")
    # Fields depend on the task, so that the columns do too.
    fields = list(dict.fromkeys(field for lengths in shown.lengths.values() for field in lengths))
    heads = (head for field in fields for head in (f"+{field} tokens", "+mean", "+p95", "+max"))
    table = plain_table("split", "+records", *heads)
    for name, count in manifest.pairs.items():
        lengths = (shown.lengths[name][field] for field in fields)
        cells = (
            f"{number:,}"
            for one in lengths
            for number in (one.total, one.mean, one.p95, one.longest)
        )
        table.add_row(name, f"{count:,}", *cells)
    print_wide(table)
    left_out = ", ".join(f"{count:,} {why}" for why, count in manifest.left_out.items())
    console.print(f"dropped from the training split: {left_out or 'nothing'}")
    for split, repairs in manifest.repaired.items():
        console.print(
            f"repaired in {split}: "
            f"{', '.join(f'{count:,} {what}' for what, count in repairs.items())}"
        )
    if manifest.overlap is not None:
        shares = shares_text(manifest.overlap.shares(manifest.pairs["test"]))
        console.print(f"test text that occurs in the training split: {shares}")
    for line in manifest.noticed:
        console.print(f"note: {line}")
    kinds = (
        shown.tokenizer,
        *([str(manifest.data["vocabulary"])] if "vocabulary" in manifest.data else []),
    )
    console.print(
        f"vocabulary: {shown.vocab_size:,} pieces, {', '.join(kinds)}: ... {' '.join(shown.pieces)}"
    )
    for texts in shown.sample:
        console.print("  " + "\n  -> ".join(texts))
    for name in manifest.pairs:
        console.print(f"{name}: {_origin_text(manifest.sources.get(name) or Origin())}")


def _overlap_json(manifest: CorpusManifest) -> dict[str, Any] | None:
    """Counts, and shares of the test records; None if the corpus was prepared without counting
    them.
    """
    overlap = manifest.overlap
    if overlap is None:
        return None
    return {**overlap.model_dump(), "shares": overlap.shares(manifest.pairs["test"])}


def _origin_text(origin: Origin) -> str:
    """Origin of a split: `train.en, train.de, SHA-256 of the text 1a2b..., 3c4d...`."""
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
