"""Prepare a corpus once: read, check, learn the vocabulary on the training side, encode, write.

A prepared corpus is named by the hash of the text it was made from and of how it was made. It is built in a folder
beside its place, which is renamed when whole; a preparation that was stopped goes on where it was, and several
processes that want the corpus wait for the first.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablate.config import DataConfig
from ablate.data.builder import Work, not_usual
from ablate.data.corpus import FORMAT, Corpus
from ablate.data.resolve_sources import SPLITS, sources_of
from ablate.data.sources import Source
from ablate.errors import Damaged, DataError
from ablate.store.corpora import is_prepared, remember, remembered
from ablate.store.files import sync_folder
from ablate.store.lease import Lease

Content = dict[str, list[str]]  # by split, the hashes of its text
Tell = Callable[[str], None]  # takes a line for people: what is being done


def prepare(data: DataConfig, folder: Path, corpora: Path, tell: Tell = lambda line: None) -> Corpus:
    """The prepared corpus, made if it is not there yet, and made again if it was damaged since.

    Args:
        data: what the study says.
        folder: where its splits lie.
        corpora: where prepared corpora are kept.
        tell: told of damage, and of what is being done where that takes long.

    Raises:
        DataError: the corpus is missing or malformed, or holds fewer pieces than vocab_size.
        StoreError: the prepared corpus cannot be read.
    """
    sources = sources_of(data, folder, corpora, tell)
    signature = [source.signature() for source in sources.values()]
    identity = remembered(data, corpora, signature, FORMAT)
    content: Content = {}
    if identity is None:
        content = {split: source.content() for split, source in sources.items()}
        identity = content_id(data, content)
    place = corpora / identity
    corpus = _whole(place, tell)
    if corpus is None:
        corpora.mkdir(parents=True, exist_ok=True)
        lease = Lease(corpora / f"{identity}.lease")
        with lease.held():
            corpus = _whole(place)  # another may have made it meanwhile
            if corpus is None:
                content = content or {split: source.content() for split, source in sources.items()}
                _build(data, sources, content, place, tell, lease.check)
                corpus = Corpus(place)
    remember(data, corpora, identity, signature)
    return corpus


def _whole(place: Path, tell: Tell = lambda line: None) -> Corpus | None:
    """The prepared corpus in its place; None where there is none that is as it was written."""
    if not is_prepared(place):
        return None
    try:
        corpus = Corpus(place)
        corpus.verify()
    except Damaged as error:
        tell(f"{error}; the corpus is prepared again")
        return None
    return corpus


def content_id(data: DataConfig, content: Content) -> str:
    """The name of the corpus that this text makes, prepared so: 12 hexadecimal digits."""
    how: list[Any] = [FORMAT, data.vocab_size, data.max_length, [hash for split in SPLITS for hash in content[split]]]
    later = not_usual(data)
    return hashlib.sha256(json.dumps(how + [later] * bool(later)).encode()).hexdigest()[:12]


def _build(
    data: DataConfig,
    sources: dict[str, Source],
    content: Content,
    place: Path,
    tell: Tell,
    guard: Callable[[], None],
) -> None:
    """Make it in its place, of which there is nothing whole; `guard` raises where another has taken over."""
    about = {split: {**source.about(), "sha256": content[split]} for split, source in sources.items()}
    work = Work(place.with_name(f".{place.name}.work"), data, sources, about, tell)
    try:
        work.do()
    except DataError:  # the same text will be at fault again
        shutil.rmtree(work.folder, ignore_errors=True)
        raise
    guard()
    shutil.rmtree(place, ignore_errors=True)
    work.folder.replace(place)
    sync_folder(place.parent)
