"""Prepare a corpus once: read, check, train the vocabulary on the training split, encode, write.

The id of a prepared corpus is a hash of its text and its settings. The corpus is built in a working
folder, which is renamed when complete; an interrupted preparation resumes. If several processes
need the same corpus, one prepares it and the others wait.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ablate.config import DataConfig
from ablate.config.data import CorpusConfig
from ablate.config.language_data import LanguageData
from ablate.data.builder import CorpusBuilder, later_settings
from ablate.data.corpus import FORMAT, Corpus
from ablate.data.resolve_sources import SPLITS, resolve_sources
from ablate.data.sources import TextSource
from ablate.data.stream_builder import StreamBuilder, stream_settings
from ablate.data.stream_sources import StreamSource, resolve_streams
from ablate.errors import Damaged, DataError
from ablate.store.corpora import is_prepared, remember, remembered
from ablate.store.files import sync_folder
from ablate.store.lease import Lease

Content = dict[str, list[str]]  # by split, the hashes of its text
Log = Callable[[str], None]


def prepare(
    data: CorpusConfig, folder: Path, corpora: Path, log: Log = lambda line: None
) -> Corpus:
    """Open the prepared corpus of a study; build it if it is missing or damaged.

    Args:
        data: the study's data settings.
        folder: the folder of its text files.
        corpora: the folder of prepared corpora.
        log: receives lines about damage and progress.

    Raises:
        DataError: the text is missing or malformed, or has fewer pieces than vocab_size.
        StoreError: the prepared corpus cannot be read.
    """
    kind = STREAM if data.is_stream else RECORDS
    sources = kind.resolve(data, folder, corpora, log)
    signature = [source.signature() for source in sources.values()]
    corpus_id = remembered(data, corpora, signature, FORMAT)
    content: Content = {}
    if corpus_id is None:  # the files are new or have changed: hash them
        content = {split: source.content() for split, source in sources.items()}
        corpus_id = kind.content_id(data, content)
    path = corpora / corpus_id
    corpus = _open(path, log)
    if corpus is None:
        corpora.mkdir(parents=True, exist_ok=True)
        # Beside the corpus, whose folder does not exist yet.
        lease = Lease(corpora / f"{corpus_id}.lease")
        with lease.held():
            corpus = _open(path)  # another process may have made it meanwhile
            if corpus is None:
                content = content or {split: source.content() for split, source in sources.items()}
                _build(kind, data, sources, content, path, log, lease.check)
                corpus = Corpus(path)
    remember(data, corpora, corpus_id, signature)
    return corpus


def _open(path: Path, log: Log = lambda line: None) -> Corpus | None:
    """The corpus at this path, or None if it is missing or damaged."""
    if not is_prepared(path):
        return None
    try:
        corpus = Corpus(path)
        corpus.verify()
    except Damaged as error:
        log(f"{error}; preparing the corpus again")
        return None
    return corpus


def content_id(data: DataConfig, content: Content) -> str:
    """The id of the corpus made from this text with these settings: 12 hexadecimal digits."""
    hashes = [hash for split in SPLITS for hash in content[split]]
    settings: list[Any] = [FORMAT, data.vocab_size, data.max_length, hashes]
    # Left out if empty, so that a corpus without later settings has the id of the first version.
    later = later_settings(data.model_dump(), data.fields)
    return hashlib.sha256(json.dumps(settings + [later] * bool(later)).encode()).hexdigest()[:12]


def stream_content_id(data: LanguageData, content: Content) -> str:
    """The id of the corpus made from this text as a stream: 12 hexadecimal digits."""
    hashes = [hash for split in SPLITS for hash in content[split]]
    settings = [*stream_settings(data.model_dump(mode="json")), hashes]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


class Preparation(NamedTuple):
    """Preparation of one kind of corpus: its sources, the id of its content, and the class that
    builds it.
    """

    resolve: Callable[..., Mapping[str, Any]]
    content_id: Callable[..., str]
    builder: Callable[..., CorpusBuilder | StreamBuilder]


RECORDS = Preparation(resolve_sources, content_id, CorpusBuilder)
STREAM = Preparation(resolve_streams, stream_content_id, StreamBuilder)


def _build(
    kind: Preparation,
    data: CorpusConfig,
    sources: Mapping[str, TextSource | StreamSource],
    content: Content,
    path: Path,
    log: Log,
    check_lease: Callable[[], None],
) -> None:
    """Build the corpus in a working folder and move it to `path`; `check_lease` raises if the lease
    was lost.
    """
    origins = {
        split: source.origin().updated(sha256=tuple(content[split]))
        for split, source in sources.items()
    }
    builder = kind.builder(path.with_name(f".{path.name}.work"), data, sources, origins, log)
    try:
        builder.build()
    except DataError:  # trying again with the same text would fail again
        shutil.rmtree(builder.folder, ignore_errors=True)
        raise
    check_lease()
    # A damaged corpus of this id, which a rename cannot replace: its folder is not empty.
    shutil.rmtree(path, ignore_errors=True)
    builder.folder.replace(path)
    sync_folder(path.parent)
