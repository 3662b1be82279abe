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
    """The source of every split. Files are located but not read, and nothing is downloaded yet.

    Raises:
        DataError: splits are missing; one line for each.
    """
    repository = Repository(data.hub, corpora / DOWNLOADS, log) if data.hub else None
    locator = of_kind(data, _LOCATORS)(data, folder, repository)
    sources: dict[str, Source] = {}
    # A dict in place of a set, for its order. Dev and test may name the same missing file.
    faults: dict[Fault, None] = {}
    for split in locator.splits():
        try:
            sources[split] = locator.source(split)
        except DataError as error:  # collected, so that a user sees every missing split at once
            faults.update(dict.fromkeys(error.faults))
    if faults:
        raise DataError(*faults)
    return locator.completed(sources)


def of_kind(data: CorpusConfig, kinds: Mapping[type[CorpusConfig], T]) -> T:
    """The entry of a table for the class of data settings, or for the nearest of its bases."""
    return next(kinds[base] for base in type(data).__mro__ if base in kinds)


def source_faults(data: CorpusConfig, folder: Path, corpora: Path) -> tuple[Fault, ...]:
    """A fault for each missing split. Reads and downloads nothing."""
    try:
        resolve_sources(data, folder, corpora)
    except DataError as error:
        return error.faults
    return ()


def orders(sources: Mapping[str, Source]) -> list[str]:
    """A line for the files whose columns have no names: which column is read as which field."""
    files: dict[str, dict[str, None]] = {}  # names in their order, each once
    for source in sources.values():
        order = source.order()
        if order is not None:
            name = str(source.location).rpartition("/")[2]
            files.setdefault(order, {})[name] = None
    return [f"{', '.join(names)}: {order}" for order, names in files.items()]


def first_record(data: CorpusConfig, folder: Path, corpora: Path) -> list[str]:
    """Lines that show a record of dev with the label of each text, and in which order columns are
    read; none where text has one field, is generated or not at hand.
    """
    if data.is_stream or data.generated or len(data.fields) == 1:
        return []
    try:
        sources = resolve_sources(data, folder, corpora)
        if not all(map(is_local, sources.values())):
            return []
        record = next(sources["dev"].documents(), None)
        lines = orders(sources)
    except DataError:  # which other lines report
        return []
    if record is not None:
        texts = zip(data.labels, record.texts, strict=True)
        shown = ", ".join(f'{label} "{ellipsis(text, SHOWN)}"' for label, text in texts)
        lines.insert(0, f"{record.where(0).rpartition('/')[2]}: {shown}")
    return lines


def other_files(
    data: CorpusConfig, folder: Path, corpora: Path, used: Collection[str]
) -> list[str]:
    """The files that may have changed since corpora were made: by lengths and times, and then by
    content, because copies of a study share its corpora. Large files are not read.

    None if files are missing, and for corpora that are downloaded or generated.
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
                before = hashes_in(corpora / corpus)
                others = [split for split in hashes if before.get(split) not in hashes[split]]
                changed = min(changed, others, key=len)
    except DataError:
        return []
    return list(dict.fromkeys(chain.from_iterable(paths[split] for split in changed)))


def _are_at_most(paths: Collection[str], size: int) -> bool:
    """Whether files are on this machine, and have so many bytes in total or fewer."""
    return not any(map(is_address, paths)) and sum(map(os.path.getsize, paths)) <= size


def learns_in_a_moment(data: CorpusConfig, folder: Path, corpora: Path) -> bool:
    """Whether a vocabulary is learned on text that is at hand and takes less than a second.

    False for generated text that has enough pieces in any case.

    Raises:
        DataError: splits are missing.
    """
    # Items have the names of their tokens, which are not learned.
    tokenizer = getattr(data, "tokenizer", None)
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

    may_be_test_set = True  # of sacreBLEU
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
        if name.startswith(SACREBLEU) and self.may_be_test_set:
            location = SacrebleuSet(name.removeprefix(SACREBLEU), data.labels)
            return Aligned(location, len(data.fields))
        if self.repository is None or is_address(name):
            return self.in_files(name)
        return self.on_hub(self.repository, _hub_prefix(data, name))

    def generated(self, split: str) -> Source:
        return Generated(GeneratorVersion(), split, self.generate)

    def in_files(self, name: str) -> Source:
        return files_source(path_of_split(self.folder, name), self.data.text_fields)

    def on_hub(self, repository: Repository, prefix: str) -> Source:
        """A split in the files of a data set on the Hub whose names begin so."""
        return Tables(HubFiles(repository, prefix, at_once=True), self.data.text_fields)

    def completed(self, sources: dict[str, Source]) -> dict[str, Source]:
        """All splits, with those that follow from others."""
        return sources


def _pairs(path: str) -> SentencePairs:
    """The file of minimal pairs."""
    if not is_file(path):
        raise missing(path)
    if suffix_of(path) not in SUFFIXES:
        raise DataError(f"{path}: minimal_pairs must end in {listed(SUFFIXES)}, {OR_COMPRESSED}")
    return SentencePairs(Files((path,)))


def _hub_prefix(data: CorpusConfig, name: str) -> str:
    """How the names of a split's files begin on the Hub."""
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
        """The items of a split, which are not drawn yet."""
        from ablate.data.items import VERSION  # imports numpy, which no plan needs
        from ablate.data.items_form import DrawnSource

        return DrawnSource(GeneratorVersion(f"{self.data.corpus} {VERSION}"), self.data, split)


class _Texts(_Records):
    """Locates the splits of a stream of text; dev and test may be shares of the training text."""

    data: LanguageData
    may_be_test_set = False

    def splits(self) -> Sequence[str]:
        """The splits that are neither a share of the training text nor another split."""
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

    def in_files(self, name: str) -> Source:
        """A text file, with or without its ending, or the files of a folder."""
        path = path_of_split(self.folder, name)
        endings = (TEXT_SUFFIX, *TABLES)
        optional = tuple(
            f"{ending}{compressed}"
            for ending in ("", TEXT_SUFFIX)
            for compressed in ("", *COMPRESSED)
        )
        return TextFiles(Files(_files(path, endings, optional)), self.data)

    def on_hub(self, repository: Repository, prefix: str) -> Source:
        return TextFiles(HubFiles(repository, prefix, at_once=False), self.data)

    def completed(self, sources: dict[str, Source]) -> dict[str, Source]:
        """All splits, with shares cut from the end of the training text."""
        data = self.data
        if data.corpus == FILES:
            self._refuse_unused(sources)
        whole = sources["train"]
        end = 1.0
        if not data.generated:
            end -= data.held_out
        if end < 1.0 or data.max_bytes is not None:
            sources["train"] = StreamPart(whole.location, whole, 0.0, end, data.max_bytes)
        for split in ("dev", "test"):
            share = share_of(getattr(data, split))
            if share is not None:
                sources[split] = StreamPart(whole.location, whole, end, end + share, data.max_bytes)
                end += share
        sources.setdefault("test", sources["dev"])
        ordered = {split: sources[split] for split in SPLITS}
        if data.minimal_pairs is not None:
            ordered[MINIMAL_PAIRS] = _pairs(path_of_split(self.folder, data.minimal_pairs))
        return ordered

    def _refuse_unused(self, sources: Mapping[str, Source]) -> None:
        """Refuse settings of tables where every file is plain text."""
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
    may_be_test_set = False

    def in_files(self, name: str) -> Source:
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
    """The file of a path, whose ending may be left out, or those of a folder in some formats."""
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
