"""Prepare a corpus once: read, check, train the vocabulary on the training split, encode, write.

The id of a corpus is a hash of its text and its settings. It is built in a working folder, which is
renamed when complete. An interrupted preparation resumes. If several commands need the same corpus,
one prepares it while the others wait.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ablate.config import DataConfig
from ablate.config.data import CorpusConfig
from ablate.config.language_data import LanguageData
from ablate.config.synthetic_data import SyntheticData
from ablate.data.build import Build
from ablate.data.corpus import FORMAT, Corpus
from ablate.data.preparation import Preparation
from ablate.data.prepare_items import ItemPreparation
from ablate.data.prepare_records import RecordPreparation
from ablate.data.prepare_stream import StreamPreparation
from ablate.data.resolve_sources import entry_for, resolve_sources
from ablate.data.sources import Source
from ablate.data.text_preview import column_orders
from ablate.errors import Damaged, DataError, Fault, data_field
from ablate.store.corpora import MANIFEST, is_prepared, remember, remembered
from ablate.store.files import sync_folder
from ablate.store.lease import Lease
from ablate.store.records import CorpusManifest, Origin, none_if_unreadable

Content = dict[str, list[str]]  # hashes of the text of each split
Log = Callable[[str], None]
PREPARATIONS: dict[type[CorpusConfig], Callable[[Any, Mapping[str, Source], Log], Preparation]] = {
    DataConfig: RecordPreparation,
    LanguageData: StreamPreparation,
    SyntheticData: ItemPreparation,
}


def prepare(
    data: CorpusConfig, folder: Path, corpora: Path, log: Log = lambda line: None
) -> Corpus:
    """Open the prepared corpus of a study; build it if it is missing or damaged.

    Raises:
        DataError: the text is missing or malformed, or has fewer pieces than vocab_size.
        StoreError: the prepared corpus cannot be read.
    """
    sources = resolve_sources(data, folder, corpora, log)
    preparation = preparation_of(data, sources, log)
    signature = _signature(sources)
    corpus_id = remembered(data, corpora, signature, FORMAT)
    content: Content = {}
    corpus = None if corpus_id is None else _open(corpora / corpus_id, log)
    if corpus_id is None or (corpus is not None and not preparation.is_current(corpus)):
        # The files are new or have changed, or an earlier version has lost text: hash the files.
        content = _content(sources)
        corpus_id = preparation.content_id(list(chain.from_iterable(content.values())))
        corpus = _open(corpora / corpus_id, log) or _open_former(preparation, content, corpora)
    if corpus is None:
        corpora.mkdir(parents=True, exist_ok=True)
        path = corpora / corpus_id
        lease = Lease(corpora / f"{corpus_id}.lease")
        with lease.held():
            corpus = _open(path)  # another process may have prepared it in the meantime
            if corpus is None:
                _build(preparation, content or _content(sources), path, signature, lease.check)
                corpus = Corpus(path)
    remember(data, corpora, corpus.id, signature)
    orders = column_orders(sources)
    if orders:
        orders += _direction_warnings(data, corpus)
    for line in orders:
        log(line)
    return corpus


def _direction_warnings(data: CorpusConfig, corpus: Corpus) -> Iterator[str]:
    """Warn if another study has read the same columns in another direction.

    Columns without names are read in the order of `direction`, so one of the studies is wrong.
    """
    direction = data.model_dump().get("direction")
    if direction is None:  # a task whose columns are not two languages
        return
    text = corpus.manifest.sources["train"].sha256
    other_directions = set[str]()
    for path in corpus.folder.parent.glob(f"*/{MANIFEST}"):
        manifest = none_if_unreadable(partial(CorpusManifest.read, path))
        if manifest is not None and manifest.sources.get("train", Origin()).sha256 == text:
            other_directions.add(str(manifest.data.get("direction")))
    for other_direction in sorted(other_directions - {direction}):
        yield (
            f"WARNING: another study reads the same columns as {other_direction}, and this one "
            f"as {direction}: in one of them, the languages are exchanged; set source_column "
            "and target_column"
        )


def _signature(sources: Mapping[str, Source]) -> list[Any]:
    return list(map(Source.signature, sources.values()))


def _content(sources: Mapping[str, Source]) -> Content:
    return {split: source.content() for split, source in sources.items()}


def _open_former(preparation: Preparation, content: Content, corpora: Path) -> Corpus | None:
    """Open the corpus that an earlier version prepared from this text under another id, if any, so
    that its runs can go on.
    """
    hashes: list[str] = []
    for split, source in preparation.sources.items():
        hashes += source.former_content() or content[split]
    return _open(corpora / preparation.content_id(hashes))


def _open(path: Path, log: Log = lambda line: None) -> Corpus | None:
    """The corpus at this path; None if it is missing or damaged."""
    if not is_prepared(path):
        return None
    try:
        corpus = Corpus(path)
        corpus.verify()
    except Damaged as error:
        log(f"{error}; preparing the corpus again")
        return None
    return corpus


def text_faults(
    data: CorpusConfig, folder: Path, corpora: Path, warn: Log = lambda line: None
) -> tuple[Fault, ...]:
    """Read dev and test and learn the vocabulary as `prepare` would, and return their faults.
    `warn` receives each warning about the text.

    Raises:
        DataError: splits are missing.
    """
    preparation = preparation_of(data, resolve_sources(data, folder, corpora), lambda line: None)
    with tempfile.TemporaryDirectory() as work:
        try:
            preparation.folder = Path(work)
            preparation.check()
            with data_field("train"):
                training_text = preparation.learn()
        except DataError as error:
            return error.faults
        held_out = map(preparation.text_warnings, ("dev", "test"))
        for line in chain(training_text.warnings, *held_out):
            warn(line)
    return ()


def preparation_of(data: CorpusConfig, sources: Mapping[str, Source], log: Log) -> Preparation:
    """The preparation for the class of the data settings."""
    return entry_for(data, PREPARATIONS)(data, sources, log)


def _build(
    preparation: Preparation,
    content: Content,
    path: Path,
    signature: list[Any],
    check_lease: Callable[[], None],
) -> None:
    """Build the corpus in a working folder, and move it to `path` unless the lease is lost.

    `signature` is the signature of the sources before `content` was computed.
    """
    origins = {}
    for split, source in preparation.sources.items():
        origins[split] = source.origin().model_copy(update={"sha256": tuple(content[split])})
    work = path.with_name(f".{path.name}.work")
    try:
        Build(preparation, work, origins).run()
        # The id is a hash of the text that was there at first.
        if _signature(preparation.sources) != signature:
            raise DataError("the files of the text were changed while they were read; try again")
    except DataError:  # another try with the same text would fail as well
        shutil.rmtree(work, ignore_errors=True)
        raise
    except OSError as error:
        error.filename = error.filename or str(path)  # errors of writing have no file name
        raise
    check_lease()
    # Remove a damaged corpus with this id: a rename cannot replace a folder that is not empty.
    shutil.rmtree(path, ignore_errors=True)
    work.replace(path)
    sync_folder(path.parent)
