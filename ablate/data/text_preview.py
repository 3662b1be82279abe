"""Read a study's text before it is prepared: for plans, and to find files that have changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path

from ablate.config.data import CorpusConfig
from ablate.config.language_data import BYTES
from ablate.data import toy
from ablate.data.io import is_address
from ablate.data.resolve_sources import resolve_sources
from ablate.data.sources import SHOWN, Source
from ablate.errors import DataError
from ablate.formatting import ellipsis
from ablate.store.corpora import hashes_in, remembered

LARGEST_COMPARED = 20_000_000  # bytes; the content of more text is not compared
SMALL_TEXT = 2_000_000  # bytes of files that are read, with their vocabulary, in about a second


def column_orders(sources: Mapping[str, Source]) -> list[str]:
    """Lines that say which column is read as which field, for files without column names."""
    names: dict[str, dict[str, None]] = {}  # names of files, without repetition, by column order
    for source in sources.values():
        order = source.column_order()
        if order is not None:
            name = str(source.location).rpartition("/")[2]
            names.setdefault(order, {})[name] = None
    return [f"{', '.join(files)}: {order}" for order, files in names.items()]


def first_record(data: CorpusConfig, folder: Path, corpora: Path) -> list[str]:
    """Lines that show the first record of dev with labels, and the order of columns.

    Empty for text with a single field, for generated text, and for files not on this machine.
    """
    if data.is_stream or data.generated or len(data.fields) == 1:
        return []
    try:
        sources = resolve_sources(data, folder, corpora)
        if not all(source.is_local for source in sources.values()):
            return []
        record = next(sources["dev"].documents(), None)
        lines = column_orders(sources)
    except DataError:  # other lines of the plan report it
        return []
    if record is not None:
        texts = []
        for label, text in zip(data.labels, record.texts, strict=True):
            texts.append(f'{label} "{ellipsis(text, SHOWN)}"')
        place = record.where(0).rpartition("/")[2]
        lines.insert(0, f"First record of dev ({place}): {', '.join(texts)}")
    return lines


def changed_files(
    data: CorpusConfig, folder: Path, corpora: Path, used: Collection[str]
) -> list[str]:
    """Paths of the files whose text differs from the corpora that results used.

    Sizes and times are compared first. If they differ, small files are compared by content, because
    a copy of a study has the same text in other files. Empty if files are missing, and for text
    that is downloaded or generated.
    """
    try:
        sources = resolve_sources(data, folder, corpora)
        if data.hub is not None or not all(source.is_local for source in sources.values()):
            return []  # the signature of a download may need the network
        signature = list(map(Source.signature, sources.values()))
        if remembered(data, corpora, signature) in used:
            return []
        paths = {split: list(source.location.paths()) for split, source in sources.items()}
        changed = list(sources)
        if _are_at_most(set(chain.from_iterable(paths.values())), LARGEST_COMPARED):
            for corpus in used:
                changed = min(changed, _changed_splits(sources, corpora / corpus), key=len)
    except DataError:
        return []
    return list(dict.fromkeys(chain.from_iterable(paths[split] for split in changed)))


def _changed_splits(sources: Mapping[str, Source], corpus: Path) -> list[str]:
    """The splits whose text differs from a prepared corpus."""
    old_hashes = hashes_in(corpus)
    changed = []
    for split, source in sources.items():
        hashes = (tuple(source.content()), tuple(source.former_content()))
        if old_hashes.get(split) not in hashes:
            changed.append(split)
    return changed


def _are_at_most(paths: Collection[str], size: int) -> bool:
    """Whether files are on this machine and have at most `size` bytes in total."""
    return not any(map(is_address, paths)) and sum(map(os.path.getsize, paths)) <= size


def is_prepared_quickly(data: CorpusConfig, folder: Path, corpora: Path) -> bool:
    """Whether all files are read and the vocabulary is learned in about a second, so that a plan
    can try it.

    False also for generated text whose vocabulary always has enough pieces.

    Raises:
        DataError: splits are missing.
    """
    tokenizer = getattr(data, "tokenizer", None)  # generated items have none
    if tokenizer in (None, BYTES):
        return False
    if data.generated:
        return tokenizer != "bpe" or data.vocab_size > toy.PIECES
    sources = resolve_sources(data, folder, corpora).values()
    if not all(source.is_local for source in sources):
        return False
    paths = set(chain.from_iterable(source.location.paths() for source in sources))
    return bool(paths) and _are_at_most(paths, SMALL_TEXT)
