"""Prepare a corpus once: read, check, learn the vocabulary on the training side, encode, write.

A prepared corpus is named by the hash of the text it was made from and of how it was made. It is built in a folder
beside its place, which is renamed when whole; a preparation that was stopped goes on where it was, and several
processes that want the corpus wait for the first. What is written follows from the text alone, so that writers which
no lock keeps apart, on a file system without locks, write the same bytes to the same places.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from ablate.config import DataConfig
from ablate.config.identity import INTRODUCED_DATA
from ablate.data.corpus import Corpus
from ablate.data.places import SPLITS, sources_of
from ablate.data.sources import Source
from ablate.data.work import Work
from ablate.errors import DataError
from ablate.store.corpora import MANIFEST, remember, remembered
from ablate.store.files import sync_folder

FORMAT = 1  # raised when the same text would be prepared otherwise
# Fields that choose the text, which is known by its content, and those that came with the first version.
_BY_CONTENT = {"corpus", "direction", "train", "dev", "test", "source_column", "target_column", "folder"}
_FIRST = ("vocab_size", "max_length")

Content = dict[str, list[str]]  # by split, the hashes of its text
Tell = Callable[[str], None]  # takes a line for people: what is being done


def prepare(data: DataConfig, folder: Path, corpora: Path, tell: Tell = lambda line: None) -> Corpus:
    """The prepared corpus, made if it is not there yet.

    Args:
        data: what the study says.
        folder: where its splits lie.
        corpora: where prepared corpora are kept.
        tell: told what is being done, where that takes long.

    Raises:
        DataError: the corpus is missing or malformed, or holds fewer pieces than vocab_size.
        StoreError: the prepared corpus was damaged since.
    """
    sources = sources_of(data, folder, corpora, tell)
    signature = [source.signature() for source in sources.values()]
    identity = remembered(data, corpora, signature)
    content: Content = {}
    if identity is None:
        content = {split: source.content() for split, source in sources.items()}
        identity = content_id(data, content)
    place = corpora / identity
    if not (place / MANIFEST).exists():
        corpora.mkdir(parents=True, exist_ok=True)
        with FileLock(corpora / f"{identity}.lock"):
            if not (place / MANIFEST).exists():
                _build(data, sources, content, place, tell)
    corpus = Corpus(place)
    corpus.verify()
    remember(data, corpora, identity, signature)
    return corpus


def content_id(data: DataConfig, content: Content) -> str:
    """The name of the corpus that this text makes, prepared so: 12 hexadecimal digits."""
    how: list[Any] = [FORMAT, data.vocab_size, data.max_length, [hash for split in SPLITS for hash in content[split]]]
    later = {
        name: getattr(data, name)
        for name, default in INTRODUCED_DATA.items()
        if name not in (*_FIRST, *_BY_CONTENT) and getattr(data, name) != default
    }
    return hashlib.sha256(json.dumps(how + [later] * bool(later)).encode()).hexdigest()[:12]


def _build(data: DataConfig, sources: dict[str, Source], content: Content, place: Path, tell: Tell) -> None:
    about = {split: {**source.about(), "sha256": content[split]} for split, source in sources.items()}
    work = Work(place.with_name(f".{place.name}.work"), data, sources, about, tell)
    try:
        work.do()
    except DataError:  # the same text will be at fault again
        shutil.rmtree(work.folder, ignore_errors=True)
        raise
    if place.exists() and not (place / MANIFEST).exists():
        shutil.rmtree(place, ignore_errors=True)
    try:
        work.folder.replace(place)
    except OSError:  # another machine, which no lock kept away, was first
        if not (place / MANIFEST).exists():
            raise
        shutil.rmtree(work.folder, ignore_errors=True)
    sync_folder(place.parent)
