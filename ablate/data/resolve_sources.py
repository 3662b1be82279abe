"""Locate the source of each split: files, the Hub, sacreBLEU, or a generator."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ablate.config.data import FILES, CorpusConfig, DataConfig, TextFields
from ablate.config.language_data import BYTES, MINIMAL_PAIRS, SAME_AS_DEV, LanguageData, share_of
from ablate.config.parsing_data import WSJ, WSJ_SECTIONS, ParsingData
from ablate.config.synthetic_data import SyntheticData
from ablate.data import toy
from ablate.data.hub import DOWNLOADS, Repository
from ablate.data.io import (
    COMPRESSED,
    OR_COMPRESSED,
    files_in,
    is_address,
    is_file,
    missing,
    path_of_split,
    without_compression,
)
from ablate.data.locations import SACREBLEU, Files, GeneratorVersion, HubFiles, SacrebleuSet
from ablate.data.readers import SUFFIXES, TABLES, suffix_of
from ablate.data.sources import (
    SHOWN,
    Aligned,
    Generated,
    GeneratedText,
    SentencePairs,
    Source,
    StreamPart,
    Tables,
    TextFiles,
    Treebank,
    is_local,
)
from ablate.errors import DataError, Fault, did_you_mean, listed
from ablate.formatting import ellipsis
from ablate.store.corpora import hashes_in, remembered

SPLITS = ("train", "dev", "test")
TREE_SUFFIXES = (".mrg", ".ptb", ".parse", ".tree", ".trees", ".txt")
TEXT_SUFFIX = ".txt"
LARGEST_COMPARED = 20_000_000  # bytes of files that are read to tell whether they have changed
SMALL_TEXT = 2_000_000  # bytes of files whose vocabulary is learned in a moment
T = TypeVar("T")


def resolve_sources(
    data: CorpusConfig, folder: Path, corpora: Path, log: Callable[[str], None] = lambda line: None
) -> dict[str, Source]:
    """Locate the source of every split, without reading or downloading anything.

    Raises:
        DataError: splits are missing; a fault for each.
    """
    repository = Repository(data.hub, corpora / DOWNLOADS, log) if data.hub else None
    locator = entry_for(data, _LOCATORS)(data, folder, repository)
    sources: dict[str, Source] = {}
    # A dict as an ordered set: dev and test may name the same missing file.
    faults: dict[Fault, None] = {}
    for split in locator.splits():
        try:
            sources[split] = locator.source(split)
        except DataError as error:  # collected, to report all missing splits together
            faults.update(dict.fromkeys(error.faults))
    if faults:
        raise DataError(*faults)
    return locator.complete(sources)


def entry_for(data: CorpusConfig, table: Mapping[type[CorpusConfig], T]) -> T:
    """The entry of a table for the class of the data settings, or for its nearest base class."""
    return next(table[base] for base in type(data).__mro__ if base in table)


def source_faults(data: CorpusConfig, folder: Path, corpora: Path) -> tuple[Fault, ...]:
    """The faults of missing splits, without reading or downloading anything."""
    try:
        resolve_sources(data, folder, corpora)
    except DataError as error:
        return error.faults
    return ()


def column_orders(sources: Mapping[str, Source]) -> list[str]:
    """Lines that say which column is read as which field, for files without column names."""
    files: dict[str, dict[str, None]] = {}  # order of columns -> names of files, without repetition
    for source in sources.values():
        order = source.column_order()
        if order is not None:
            name = str(source.location).rpartition("/")[2]
            files.setdefault(order, {})[name] = None
    return [f"{', '.join(names)}: {order}" for order, names in files.items()]


def first_record(data: CorpusConfig, folder: Path, corpora: Path) -> list[str]:
    """Lines that show the first record of dev with labels, and the order of columns.

    Empty for text with a single field, for generated text, and for files not on this machine.
    """
    if data.is_stream or data.generated or len(data.fields) == 1:
        return []
    try:
        sources = resolve_sources(data, folder, corpora)
        if not all(map(is_local, sources.values())):
            return []
        record = next(sources["dev"].documents(), None)
        lines = column_orders(sources)
    except DataError:  # other lines of the plan report it
        return []
    if record is not None:
        texts = []
        for label, text in zip(data.labels, record.texts, strict=True):
            texts.append(f'{label} "{ellipsis(text, SHOWN)}"')
        lines.insert(0, f"{record.where(0).rpartition('/')[2]}: {', '.join(texts)}")
    return lines


def other_files(
    data: CorpusConfig, folder: Path, corpora: Path, used: Collection[str]
) -> list[str]:
    """Paths of the files that differ from those of the corpora that results used.

    Sizes and times are compared first. If they differ, small files are compared by content, because
    a copy of a study has the same text in other files. Empty if files are missing, and for text
    that is downloaded or generated.

    Args:
        data: settings of the corpus.
        folder: folder to which relative paths refer.
        corpora: folder of prepared corpora.
        used: ids of the corpora that results used.
    """
    try:
        sources = resolve_sources(data, folder, corpora)
        if data.hub is not None or not all(map(is_local, sources.values())):
            return []  # the signature of a download may need the network
        signature = list(map(Source.signature, sources.values()))
        if remembered(data, corpora, signature) in used:
            return []
        paths = {split: list(source.location.paths()) for split, source in sources.items()}
        changed = [*sources]
        if _are_at_most(set(chain.from_iterable(paths.values())), LARGEST_COMPARED):
            hashes = {
                split: (tuple(source.content()), tuple(source.former_content()))
                for split, source in sources.items()
            }
            for corpus in used:
                old_hashes = hashes_in(corpora / corpus)
                differing = [
                    split for split in hashes if old_hashes.get(split) not in hashes[split]
                ]
                changed = min(changed, differing, key=len)
    except DataError:
        return []
    return list(dict.fromkeys(chain.from_iterable(paths[split] for split in changed)))


def _are_at_most(paths: Collection[str], size: int) -> bool:
    """Whether files are on this machine and have at most `size` bytes in total."""
    return not any(map(is_address, paths)) and sum(map(os.path.getsize, paths)) <= size


def learns_in_a_moment(data: CorpusConfig, folder: Path, corpora: Path) -> bool:
    """Whether learning the vocabulary takes less than a second, so that a plan can try it.

    False also for generated text whose vocabulary always has enough pieces.

    Raises:
        DataError: splits are missing.
    """
    tokenizer = getattr(data, "tokenizer", None)  # generated items have none
    if tokenizer in (None, BYTES):
        return False
    if data.generated:
        return tokenizer != "bpe" or data.vocab_size > toy.PIECES
    train = resolve_sources(data, folder, corpora)["train"]
    if not is_local(train):
        return False
    paths = list(train.location.paths())
    return bool(paths) and _are_at_most(paths, SMALL_TEXT)


class _Records:
    """Locates the splits of records: texts in files, on the Hub, or generated pairs."""

    allows_sacrebleu = True  # whether a split may be a test set of sacreBLEU
    generate: Callable[[], Mapping[str, Sequence[tuple[str, ...]]]] = staticmethod(toy.generate)

    def __init__(self, data: Any, folder: Path, repository: Repository | None) -> None:
        self.data = data
        self.folder = folder
        self.repository = repository

    def splits(self) -> Sequence[str]:
        return SPLITS

    def source(self, split: str) -> Source:
        data = self.data
        name = getattr(self.data, split)
        if data.generated:
            return self.generated(split)
        if name.startswith(SACREBLEU) and self.allows_sacrebleu:
            location = SacrebleuSet(name.removeprefix(SACREBLEU), data.labels)
            return Aligned(location, len(data.fields))
        if self.repository is None or is_address(name):
            return self.file_source(name)
        return self.hub_source(self.repository, _hub_prefix(data, name))

    def generated(self, split: str) -> Source:
        return Generated(GeneratorVersion(), split, self.generate)

    def file_source(self, name: str) -> Source:
        """A split in files, by a path or an address."""
        return files_source(path_of_split(self.folder, name), self.data.text_fields)

    def hub_source(self, repository: Repository, prefix: str) -> Source:
        """A split in the files of a data set on the Hub whose names have a prefix."""
        return Tables(HubFiles(repository, prefix, at_once=True), self.data.text_fields)

    def complete(self, sources: dict[str, Source]) -> dict[str, Source]:
        """Add the splits that are parts of other splits."""
        return sources


def _minimal_pairs(path: str) -> SentencePairs:
    """The source of the file of minimal pairs."""
    if not is_file(path):
        raise missing(path)
    if suffix_of(path) not in SUFFIXES:
        raise DataError(f"{path}: minimal_pairs must end in {listed(SUFFIXES)}, {OR_COMPRESSED}")
    return SentencePairs(Files((path,)))


def _hub_prefix(data: CorpusConfig, name: str) -> str:
    """The prefix of the names of a split's files on the Hub."""
    assert data.hub is not None
    files = data.hub.files
    if files is None:
        return name
    if name not in files:
        near = did_you_mean(name, files) or f"; its splits are {', '.join(files)}"
        also = "" if data.is_stream else "; sacrebleu:NAME is also allowed"
        raise DataError(f'corpus {data.corpus} on the Hub has no split "{name}"{near}{also}')
    return files[name]


class _Items(_Records):
    """Generated items: each split is drawn."""

    def generated(self, split: str) -> Source:
        """The source of a split's items."""
        from ablate.data.items import VERSION  # loads numpy, which a plan does not need
        from ablate.data.prepare_items import DrawnSource

        return DrawnSource(GeneratorVersion(f"{self.data.corpus} {VERSION}"), self.data, split)


class _Texts(_Records):
    """Locates the splits of a stream of text. Dev and test may be shares of the training text."""

    data: LanguageData
    allows_sacrebleu = False

    def splits(self) -> Sequence[str]:
        """The splits with sources of their own: no shares of the training text."""
        if self.data.generated:
            return SPLITS
        splits = ["train"]
        if share_of(self.data.dev) is None:
            splits.append("dev")
        if share_of(self.data.test) is None and self.data.test != SAME_AS_DEV:
            splits.append("test")
        return splits

    def generated(self, split: str) -> Source:
        return GeneratedText(GeneratorVersion(), split)

    def file_source(self, name: str) -> Source:
        """A text file, whose ending may be left out, or the files of a folder."""
        path = path_of_split(self.folder, name)
        endings = (TEXT_SUFFIX, *TABLES)
        optional = tuple(
            f"{ending}{compressed}"
            for ending in ("", TEXT_SUFFIX)
            for compressed in ("", *COMPRESSED)
        )
        return TextFiles(Files(_files(path, endings, optional)), self.data)

    def hub_source(self, repository: Repository, prefix: str) -> Source:
        return TextFiles(HubFiles(repository, prefix, at_once=False), self.data)

    def complete(self, sources: dict[str, Source]) -> dict[str, Source]:
        """Add the splits that are shares, cut from the end of the training text."""
        data = self.data
        if data.corpus == FILES:
            self._refuse_unused(sources)
        text = sources["train"]
        end = 1.0
        if not data.generated:
            end -= data.held_out
        if end < 1.0 or data.max_bytes is not None:
            sources["train"] = StreamPart(text.location, text, 0.0, end, data.max_bytes)
        for split in ("dev", "test"):
            share = share_of(getattr(data, split))
            if share is not None:
                sources[split] = StreamPart(text.location, text, end, end + share, data.max_bytes)
                end += share
        sources.setdefault("test", sources["dev"])
        ordered = {split: sources[split] for split in SPLITS}
        if data.minimal_pairs is not None:
            path = path_of_split(self.folder, data.minimal_pairs)
            ordered[MINIMAL_PAIRS] = _minimal_pairs(path)
        return ordered

    def _refuse_unused(self, sources: Mapping[str, Source]) -> None:
        """Refuse settings of tables if all files are plain text."""
        files: list[str] = []
        for source in sources.values():
            files += source.location.paths()
        if not set(TABLES).isdisjoint(map(suffix_of, files)):
            return
        for name in ("column", "rows"):
            if getattr(self.data, name) != self.data.introduced[name]:
                raise DataError(
                    f"{files[0]}: is plain text: data.{name} has no effect on it; remove it"
                )


class _Trees(_Records):
    """Locates treebanks: the trees of a file, of a folder, or of sections of the WSJ."""

    generate = staticmethod(toy.trees)
    allows_sacrebleu = False

    def file_source(self, name: str) -> Source:
        sections = WSJ_SECTIONS.fullmatch(name) if self.data.corpus == WSJ else None
        if sections is None:
            return Treebank(Files(_files(path_of_split(self.folder, name), TREE_SUFFIXES)))
        first = int(sections[1])
        remedy = (
            "set data.folder to the folder of the WSJ's sections, which are licensed (LDC99T42)"
        )
        files: list[str] = []
        for number in range(first, int(sections[2] or first) + 1):
            path = path_of_split(self.folder, f"{number:02d}")
            files += _files(path, TREE_SUFFIXES, remedy=remedy)
        return Treebank(Files(tuple(files)))


def _files(
    path: str,
    suffixes: Sequence[str],
    endings: Sequence[str] = ("",),
    remedy: str = "correct the name or data.folder",
) -> tuple[str, ...]:
    """The file at a path, or the files of a folder.

    Args:
        path: path of the file, which may lack its ending, or of the folder.
        suffixes: formats to use of a folder.
        endings: endings that a path may lack.
        remedy: what to do if nothing exists.
    """
    for ending in endings:
        if is_file(f"{path}{ending}"):
            return (f"{path}{ending}",)
    inside = files_in(path)
    if inside is None:
        raise missing(path, remedy=remedy)
    files = tuple(file for file in inside if suffix_of(file) in suffixes)
    if not files:
        raise DataError(f"{path}: holds no file that ends in {listed(suffixes)}, {OR_COMPRESSED}")
    return files


_LOCATORS: dict[type[CorpusConfig], type[_Records]] = {
    DataConfig: _Records,
    ParsingData: _Trees,
    LanguageData: _Texts,
    SyntheticData: _Items,
}


# Files of records


def files_source(path: str, fields: TextFields) -> Source:
    """The source of a split: a file with columns, a text file per field, or a folder of either.

    Raises:
        DataError: the files are missing; the message names them.
    """
    if suffix_of(path) in SUFFIXES:
        if not is_file(path):
            raise missing(path)
        return Tables(Files((path,)), fields)
    files = []
    absent = []
    for plain in (f"{path}.{label}" for label in fields.labels):
        file = next(filter(is_file, map(plain.__add__, ("", *COMPRESSED))), None)
        if file is None:
            absent.append(plain)
        else:
            files.append(file)
    if not absent:
        _refuse_columns(path, fields)
        return Aligned(Files(tuple(files)), len(files))
    inside = files_in(path)
    if inside is not None:
        return _folder_source(path, inside, fields)
    if is_file(path):
        endings = f"{listed(SUFFIXES)}, {OR_COMPRESSED}"
        raise DataError(f"{path}: a file with columns must end in {endings}")
    raise _missing_files(path, f"{absent[0]}(.gz)", fields.labels)


def _missing_files(path: str, shown: str, labels: Sequence[str]) -> DataError:
    """The error with names that a study may write for a split, or its files of other endings."""
    name = Path(path).name
    folder = Path(path).absolute().parent
    names = set[str]()
    tables = list[str]()
    languages = list[str]()
    others = list[str]()
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        stem, _, label = without_compression(entry.name).rpartition(".")
        is_table = suffix_of(entry.name) in SUFFIXES
        if stem and label in labels:
            names.add(stem)
        elif is_table or entry.is_dir():
            names.add(entry.name)
        if entry.is_file() and entry.name.startswith(f"{name}."):
            (tables if is_table else languages if stem == name else others).append(entry.name)
    if tables and not languages:
        return missing(path, shown, f'did you mean "{tables[0]}"?', names=())
    if languages or others:
        found = " and ".join(languages or others)
        return missing(path, shown, f"its folder has {found}", names=())
    return missing(path, shown, names=names)


def _folder_source(path: str, inside: list[str], fields: TextFields) -> Source:
    tables = [file for file in inside if suffix_of(file) in SUFFIXES]
    if tables:
        kinds = sorted(set(map(suffix_of, tables)))
        if len(kinds) > 1:
            raise DataError(
                f"{path}: holds files of several formats ({', '.join(kinds)}); keep one, or choose "
                f"a file"
            )
        return Tables(Files(tuple(tables)), fields)
    by_stem: dict[str, dict[str, str]] = {}  # the file of each label
    for file in inside:
        stem, _, label = without_compression(file).rpartition(".")
        if label in fields.labels:
            by_stem.setdefault(stem, {})[label] = file
    if not by_stem:
        endings = ", ".join((*SUFFIXES, *(f".{label}" for label in fields.labels)))
        raise DataError(f"{path}: holds no file that ends in {endings}, {OR_COMPRESSED}")
    for stem, files in sorted(by_stem.items()):
        for label in fields.labels:
            if label not in files:
                counterpart = next(iter(files.values()))
                name = f"{stem.rpartition('/')[2]}.{label}"
                raise DataError(f"{counterpart}: has no counterpart {name}")
    _refuse_columns(path, fields)
    ordered = [by_stem[stem][label] for label in fields.labels for stem in sorted(by_stem)]
    return Aligned(Files(tuple(ordered)), len(fields.labels))


def _refuse_columns(path: str, fields: TextFields) -> None:
    if fields.columns is not None:
        raise DataError(
            f"{path}: is plain text: {' and '.join(fields.settings)} have no effect on it"
        )
