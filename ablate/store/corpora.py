"""Prepared corpora in a results root: their manifests, and pointers from settings to corpora.

`corpora/<id>/corpus.json` is the manifest of a corpus, and is written last. `corpora/<hash of
settings>.json` is a pointer: it names the corpus last prepared from a study's data settings, so
that `ablate plan` need not read the text again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ablate.config.data import CorpusConfig
from ablate.config.identity import named_settings
from ablate.config.lengths import Lengths
from ablate.config.translation_data import languages_of
from ablate.store.files import make_room
from ablate.store.records import CorpusManifest, CorpusPointer, none_if_damaged, none_if_unreadable

MANIFEST = "corpus.json"
# Settings that are always hashed into the pointer's name, as in the first version. All other
# settings are hashed only if they differ from their defaults.
_ALWAYS_NAMED = {"vocab_size", "max_length"}
_FIRST_FIELDS = ("source", "target")  # text fields of corpora whose manifests do not name them


def is_prepared(folder: Path) -> bool:
    """Whether a folder holds a prepared corpus."""
    return (folder / MANIFEST).exists()


def is_archived(folder: Path) -> bool:
    """Whether a folder has only the manifest of a corpus, as in an unpacked archive of `ablate
    publish`.
    """
    return is_prepared(folder) and len(list(folder.iterdir())) == 1


def fields_of(manifest: CorpusManifest) -> tuple[str, ...]:
    """The text fields of the corpus of a manifest."""
    return manifest.fields or _FIRST_FIELDS


def fields_entry(fields: Sequence[str]) -> dict[str, list[str]]:
    """The entry of a manifest for its text fields; empty for (source, target), as in the first
    version.
    """
    return {} if tuple(fields) == _FIRST_FIELDS else {"fields": list(fields)}


def names_other_files(manifest: CorpusManifest) -> bool:
    """Whether a manifest names files outside of its folder, as only a malicious manifest does."""
    return any(name != Path(name).name for name in manifest.files)


def remember(data: CorpusConfig, corpora: Path, corpus: str, signature: Sequence[Any] = ()) -> None:
    """Record that these settings, and files with this signature, gave a corpus."""
    path = _pointer(data, corpora)
    pointer = CorpusPointer(corpus=corpus, signature=list(signature))
    if _read_pointer(path) != pointer:
        make_room(path)
        pointer.write(path)


def remembered(
    data: CorpusConfig, corpora: Path, signature: Sequence[Any], format: int | None = None
) -> str | None:
    """Id of the corpus that was last prepared from these settings and files; None if there is none.
    If `format` is given, the corpus must have this format.
    """
    pointer = _read_pointer(_pointer(data, corpora))
    if pointer is None or pointer != CorpusPointer(
        corpus=pointer.corpus, signature=list(signature)
    ):
        return None
    manifest = _read_manifest(corpora / pointer.corpus)
    if manifest is None or format not in (None, manifest.format):
        return None
    return pointer.corpus


def known_corpus(data: CorpusConfig, corpora: Path) -> Path | None:
    """Path of the manifest of the corpus last prepared from these settings; None if there is
    none.
    """
    pointer = _read_pointer(_pointer(data, corpora))
    return corpora / pointer.corpus / MANIFEST if pointer else None


def known_lengths(data: CorpusConfig, corpora: Path) -> Lengths | None:
    """Sums of lengths of the corpus last prepared from these settings; None if there is none."""
    manifest = known_corpus(data, corpora)
    return lengths_in(manifest.parent) if manifest else None


def lengths_in(folder: Path) -> Lengths | None:
    """Sums of lengths of a corpus; None if it is missing or damaged."""
    manifest = _read_manifest(folder)
    return Lengths.of_fields(manifest.lengths, fields_of(manifest)) if manifest else None


def overlaps_in(folder: Path) -> dict[str, dict[str, float]]:
    """`overlap_shares` of a corpus; empty if it is missing or damaged."""
    manifest = _read_manifest(folder)
    return manifest.overlap_shares if manifest else {}


def leaks_in(folder: Path) -> dict[str, str]:
    """`leaks` of a corpus; empty if it is missing or damaged."""
    manifest = _read_manifest(folder)
    return manifest.leaks if manifest else {}


def exchanged_in(folder: Path) -> list[str]:
    """The splits of a corpus whose two sides are exchanged; empty if it is missing or damaged."""
    manifest = _read_manifest(folder)
    return manifest.exchanged if manifest else []


def warnings_in(folder: Path, labels: Sequence[str]) -> list[str]:
    """`text_warnings` of a corpus with the labels of a study; empty if it is missing or damaged."""
    manifest = _read_manifest(folder)
    return with_labels(manifest.text_warnings, manifest, labels) if manifest else []


def with_labels(lines: Iterable[str], manifest: CorpusManifest, labels: Sequence[str]) -> list[str]:
    """Lines about a corpus with the labels of a study in the place of its own, as in `dev (zh)`:
    studies with other names of the same languages share a corpus.
    """
    own = languages_of(str(manifest.data.get("direction")))
    if len(own) != len(labels):  # a task without languages
        return list(lines)
    names = dict(zip(own, labels, strict=True))
    pattern = rf"\b(train|dev|test) \(({'|'.join(map(re.escape, own))})\)"
    return [
        re.sub(pattern, lambda place: f"{place[1]} ({names[place[2]]})", line) for line in lines
    ]


def hashes_in(folder: Path) -> dict[str, tuple[str, ...] | None]:
    """The hashes of the text of each split of a corpus; empty if it is missing or damaged."""
    manifest = _read_manifest(folder)
    return {split: origin.sha256 for split, origin in manifest.sources.items()} if manifest else {}


def _read_pointer(path: Path) -> CorpusPointer | None:
    return none_if_damaged(partial(CorpusPointer.read, path))


def _read_manifest(folder: Path) -> CorpusManifest | None:
    # Unreadable counts as absent: the corpus is prepared again, which then reports the error.
    return none_if_unreadable(partial(CorpusManifest.read, folder / MANIFEST))


def _pointer(data: CorpusConfig, corpora: Path) -> Path:
    # Settings at their defaults are left out, so that pointers of earlier versions, which did not
    # have all settings, are still found.
    values = {**data.model_dump(exclude={"folder"}), **fields_entry(data.fields)}
    named = named_settings(values)
    names = named.keys() | _ALWAYS_NAMED
    values = {name: value for name, value in values.items() if name in names}
    settings = json.dumps(values, sort_keys=True)
    return corpora / f"{hashlib.sha256(settings.encode()).hexdigest()[:12]}.json"
