"""Prepare a corpus once: read, check, train the vocabulary on the training split, encode, write.

The id of a prepared corpus is a hash of its text and its settings. The corpus is built in a working
folder, which is renamed when complete; an interrupted preparation resumes. If several commands
need the same corpus, one prepares it and the others wait.
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
from ablate.data.builder import Preparation
from ablate.data.corpus import FORMAT, Corpus
from ablate.data.items_form import ItemStream
from ablate.data.record_form import Records
from ablate.data.resolve_sources import of_kind, orders, resolve_sources
from ablate.data.sources import Source
from ablate.data.stream_form import DocumentStream
from ablate.errors import Damaged, DataError, Fault
from ablate.store.corpora import MANIFEST, is_prepared, remember, remembered
from ablate.store.files import sync_folder
from ablate.store.lease import Lease
from ablate.store.records import CorpusManifest, Origin, if_readable

Content = dict[str, list[str]]  # by split, the hashes of its text
Log = Callable[[str], None]
FORMS: dict[type[CorpusConfig], Callable[[Any, Mapping[str, Source], Log], Preparation]] = {
    DataConfig: Records,
    LanguageData: DocumentStream,
    SyntheticData: ItemStream,
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
    form = form_of(data, sources, log)
    signature = list(map(Source.signature, sources.values()))
    corpus_id = remembered(data, corpora, signature, FORMAT)
    content: Content = {}
    corpus = None if corpus_id is None else _open(corpora / corpus_id, log)
    if corpus_id is None or (corpus is not None and not form.is_current(corpus)):
        # The files are new or have changed, or an earlier version lost a part of them: hash them.
        content = _content(sources)
        corpus_id = form.content_id(list(chain.from_iterable(content.values())))
        corpus = _open(corpora / corpus_id, log)
        if corpus is None and (former := _former(form, sources, content, corpora)) is not None:
            corpus_id = former.folder.name
            corpus = former
    path = corpora / corpus_id
    if corpus is None:
        corpora.mkdir(parents=True, exist_ok=True)
        # Beside the corpus, whose folder does not exist yet.
        lease = Lease(corpora / f"{corpus_id}.lease")
        with lease.held():
            corpus = _open(path)  # another process may have made it meanwhile
            if corpus is None:
                _build(form, content or _content(sources), path, lease.check)
                corpus = Corpus(path)
    remember(data, corpora, corpus_id, signature)
    for line in [*(ordered := orders(sources)), *(_exchanged(data, corpus) if ordered else ())]:
        log(line)
    return corpus


def _exchanged(data: CorpusConfig, corpus: Corpus) -> Iterator[str]:
    """Yield a warning for each direction in which another study has read the same columns.

    The order of columns without names is that of `direction`, so one of the studies is wrong. Both
    may share a corpus, since the text is the same.
    """
    own = data.model_dump().get("direction")
    others = dict[str, None]()
    for path in sorted(corpus.folder.parent.glob(f"*/{MANIFEST}")):
        other = if_readable(partial(CorpusManifest.read, path))
        text = corpus.manifest.sources["train"].sha256
        if other is not None and other.sources.get("train", Origin()).sha256 == text:
            others[str(other.data.get("direction"))] = None
    for other_direction in others:
        if other_direction != own:
            yield (
                f"WARNING: another study reads the same columns as {other_direction}, and this one "
                f"as {own}: in one of them, the languages are exchanged; set source_column and "
                f"target_column"
            )


def _content(sources: Mapping[str, Source]) -> Content:
    return {split: source.content() for split, source in sources.items()}


def _former(
    form: Preparation, sources: Mapping[str, Source], content: Content, corpora: Path
) -> Corpus | None:
    """The corpus of this text that an earlier version prepared under another id, whose runs go on
    with it; None if there is none.
    """
    hashes = [source.former_content() or content[split] for split, source in sources.items()]
    if hashes == [*content.values()]:
        return None
    return _open(corpora / form.content_id(list(chain.from_iterable(hashes))))


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


def vocabulary_faults(data: CorpusConfig, folder: Path, corpora: Path) -> tuple[Fault, ...]:
    """A fault for each reason why `prepare` could not learn the vocabulary.

    Raises:
        DataError: splits are missing.
    """
    form = form_of(data, resolve_sources(data, folder, corpora), lambda line: None)
    with tempfile.TemporaryDirectory() as work:
        try:
            form.folder = Path(work)
            form.learn()
        except DataError as error:
            return error.faults
    return ()


def form_of(data: CorpusConfig, sources: Mapping[str, Source], log: Log) -> Preparation:
    """How the text of a study is prepared."""
    return of_kind(data, FORMS)(data, sources, log)


def _build(
    form: Preparation, content: Content, path: Path, check_lease: Callable[[], None]
) -> None:
    """Build the corpus in a working folder and move it to `path`, unless the lease was lost."""
    origins = {}
    for split, source in form.sources.items():
        origins[split] = source.origin().updated(sha256=tuple(content[split]))
    work = path.with_name(f".{path.name}.work")
    try:
        form.build(work, origins)
    except DataError:  # trying again with the same text would fail again
        shutil.rmtree(work, ignore_errors=True)
        raise
    except OSError as error:
        error.filename = error.filename or str(path)  # that of a write has none
        raise
    check_lease()
    # A damaged corpus of this id, which a rename cannot replace: its folder is not empty.
    shutil.rmtree(path, ignore_errors=True)
    work.replace(path)
    sync_folder(path.parent)
