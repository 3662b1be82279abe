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
from ablate.store.corpora import hashes_in, known_corpus, remembered

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
    data: CorpusConfig, folder: Path, corpora: Path, used: Mapping[Path, Collection[str]]
) -> list[str]:
    """Paths of the files whose text differs from the corpora that results used.

    Sizes and times are compared first. If they differ, the content is, because a copy of a study
    has the same text in other files. Text that is downloaded or generated is not compared: the
    name of the corpus determines it.

    Args:
        data: data settings of the study.
        folder: folder of its splits.
        corpora: folder of prepared corpora.
        used: folder of each corpus that results used -> the splits that must have the same text.

    Raises:
        DataError: the text cannot be compared; the message says why.
    """
    if data.hub is not None or data.generated:
        return []
    sources = resolve_sources(data, folder, corpora)
    local = {split: source for split, source in sources.items() if source.is_local}
    known = _remembered(data, corpora, sources)
    if used.keys() <= {known}:
        return []
    paths = {split: list(source.location.paths()) for split, source in local.items()}
    files = set(chain.from_iterable(paths.values()))
    if known is None and not _are_at_most(files, LARGEST_COMPARED):
        raise DataError(
            "its files have other sizes or times, and are remote or too large to compare here"
        )
    hashes = {} if known is None else hashes_in(known)
    changed: dict[str, None] = {}  # an ordered set
    for corpus_folder, splits in used.items():
        earlier = hashes_in(corpus_folder)
        for split, source in local.items():
            if split not in splits:
                continue
            if earlier.get(split) is None:
                raise DataError(f"no manifest has the hash of corpus {corpus_folder.name}")
            if hashes.get(split) is None:
                hashes[split] = tuple(source.content())
            if earlier[split] not in (hashes[split], tuple(source.former_content())):
                changed |= dict.fromkeys(paths[split])
    return list(changed)


def prepared_corpus(data: CorpusConfig, folder: Path, corpora: Path) -> Path | None:
    """The folder of the corpus that was prepared from the text of a study; None if there is none,
    or if files have other sizes or times than at the preparation.

    Raises:
        DataError: splits are missing.
    """
    sources = resolve_sources(data, folder, corpora)
    if all(source.is_local for source in sources.values()):
        return _remembered(data, corpora, sources)
    manifest = known_corpus(data, corpora)
    return manifest.parent if manifest is not None and manifest.exists() else None


def _remembered(data: CorpusConfig, corpora: Path, sources: Mapping[str, Source]) -> Path | None:
    """The folder of the corpus that was prepared from these files; None for downloads, whose
    signature may need the network.
    """
    if not all(source.is_local for source in sources.values()):
        return None
    corpus = remembered(data, corpora, list(map(Source.signature, sources.values())))
    return None if corpus is None else corpora / corpus


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
