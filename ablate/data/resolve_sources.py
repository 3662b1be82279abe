"""Locate the source of each split: files, the Hub, sacreBLEU, or a generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ablate.config.data import FILES, CorpusConfig, DataConfig
from ablate.config.language_data import MINIMAL_PAIRS, SAME_AS_DEV, LanguageData, share_of
from ablate.config.parsing_data import WSJ, WSJ_SECTIONS, ParsingData
from ablate.config.synthetic_data import SyntheticData
from ablate.data import toy
from ablate.data.find_files import find_files, record_source
from ablate.data.hub import DOWNLOADS, Repository
from ablate.data.io import (
    COMPRESSED,
    OR_COMPRESSED,
    is_address,
    is_file,
    missing,
    path_of_split,
    suffix_of,
)
from ablate.data.locations import SACREBLEU, Files, GeneratorVersion, HubFiles, SacrebleuSet
from ablate.data.readers import SUFFIXES, TABLES
from ablate.data.sources import Aligned, Source, Tables, ToyRecords, Treebank
from ablate.data.text_streams import SentencePairs, StreamPart, TextFiles, ToyText
from ablate.errors import DataError, Fault, data_field, listed, unknown_name

SPLITS = ("train", "dev", "test")
TREE_SUFFIXES = (".mrg", ".ptb", ".parse", ".tree", ".trees", ".txt")
TOY = GeneratorVersion("toy", toy.VERSION)
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
    # A dict as an ordered set: all splits may be in the same missing folder.
    faults: dict[Fault, None] = {}
    for split in locator.splits():
        try:
            with data_field(split):
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


class _RecordLocator:
    """Locates records: in files, on the Hub, in a test set of sacreBLEU, or generated pairs.

    allows_sacrebleu: whether a split may be a test set of sacreBLEU.
    generate: generates the records of the toy corpus.
    """

    allows_sacrebleu = True
    generate: Callable[[], Mapping[str, Sequence[tuple[str, ...]]]] = staticmethod(toy.generate)

    def __init__(self, data: Any, folder: Path, repository: Repository | None) -> None:
        self.data = data
        self.folder = folder
        self.repository = repository

    def splits(self) -> Sequence[str]:
        """The splits that `source` locates."""
        return SPLITS

    def source(self, split: str) -> Source:
        """The source of a split.

        Raises:
            DataError: the split does not exist.
        """
        data = self.data
        name = getattr(data, split)
        if data.generated:
            return self.generated(split)
        if name.startswith(SACREBLEU) and self.allows_sacrebleu:
            location = SacrebleuSet(name.removeprefix(SACREBLEU), data.labels)
            return Aligned(location, len(data.fields))
        if self.repository is None or is_address(name):
            return self.file_source(name)
        return self.hub_source(self.repository, _hub_prefix(data, name))

    def generated(self, split: str) -> Source:
        """A generated split."""
        return ToyRecords(TOY, split, self.generate)

    def file_source(self, name: str) -> Source:
        """A split in files, which a path or an address names."""
        return record_source(path_of_split(self.folder, name), self.data.text_fields)

    def hub_source(self, repository: Repository, prefix: str) -> Source:
        """A split in the files of a data set on the Hub, whose names begin with a prefix."""
        return Tables(HubFiles(repository, prefix, download_all=True), self.data.text_fields)

    def complete(self, sources: dict[str, Source]) -> dict[str, Source]:
        """Add the splits that are parts of other splits, and order them."""
        return sources


class _TextLocator(_RecordLocator):
    """Locates streams of text. Dev and test may be shares of the training text."""

    data: LanguageData
    allows_sacrebleu = False

    def splits(self) -> Sequence[str]:
        """The splits that are no shares of the training text."""
        if self.data.generated:
            return SPLITS
        splits = ["train"]
        if share_of(self.data.dev) is None:
            splits.append("dev")
        if share_of(self.data.test) is None and self.data.test != SAME_AS_DEV:
            splits.append("test")
        return splits

    def generated(self, split: str) -> Source:
        """A split of the toy text."""
        return ToyText(TOY, split)

    def file_source(self, name: str) -> Source:
        """A text file, whose name may be given without .txt, or the files of a folder."""
        path = path_of_split(self.folder, name)
        endings = ("", *COMPRESSED, ".txt", *(f".txt{ending}" for ending in COMPRESSED))
        return TextFiles(Files(find_files(path, (".txt", *TABLES), endings)), self.data)

    def hub_source(self, repository: Repository, prefix: str) -> Source:
        """The text in the files of a data set on the Hub, whose names begin with a prefix."""
        return TextFiles(HubFiles(repository, prefix, download_all=False), self.data)

    def complete(self, sources: dict[str, Source]) -> dict[str, Source]:
        """Add the splits that are shares of the training text, cut from its end."""
        data = self.data
        if data.corpus == FILES:
            self._refuse_table_settings(sources)
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
            with data_field(MINIMAL_PAIRS):
                path = path_of_split(self.folder, data.minimal_pairs)
                ordered[MINIMAL_PAIRS] = _minimal_pairs(path)
        return ordered

    def _refuse_table_settings(self, sources: Mapping[str, Source]) -> None:
        """Refuse settings of tables if all files are plain text.

        Raises:
            DataError: such a setting has no effect.
        """
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


class _TreeLocator(_RecordLocator):
    """Locates treebanks: the trees in a file, in a folder, or in sections of the WSJ."""

    generate = staticmethod(toy.trees)
    allows_sacrebleu = False

    def file_source(self, name: str) -> Source:
        """A file or folder of trees; of the WSJ, a section `23` or sections `02-21`."""
        sections = WSJ_SECTIONS.fullmatch(name) if self.data.corpus == WSJ else None
        if sections is None:
            return Treebank(Files(find_files(path_of_split(self.folder, name), TREE_SUFFIXES)))
        first = int(sections[1])
        remedy = (
            "set data.folder to the folder of the WSJ's sections, which are licensed (LDC99T42)"
        )
        files: list[str] = []
        for number in range(first, int(sections[2] or first) + 1):
            path = path_of_split(self.folder, f"{number:02d}")
            files += find_files(path, TREE_SUFFIXES, remedy=remedy)
        return Treebank(Files(tuple(files)))


class _ItemLocator(_RecordLocator):
    """Locates generated items, which are drawn when they are read."""

    def generated(self, split: str) -> Source:
        """The source of a split's items."""
        from ablate.data.items import VERSION  # loads numpy, which a plan does not need
        from ablate.data.prepare_items import DrawnSource

        return DrawnSource(GeneratorVersion(self.data.corpus, VERSION), self.data, split)


_LOCATORS: dict[type[CorpusConfig], type[_RecordLocator]] = {
    DataConfig: _RecordLocator,
    ParsingData: _TreeLocator,
    LanguageData: _TextLocator,
    SyntheticData: _ItemLocator,
}


def _minimal_pairs(path: str) -> SentencePairs:
    """The source of the file of minimal pairs."""
    if not is_file(path):
        raise missing(path)
    if suffix_of(path) not in SUFFIXES:
        raise DataError(f"{path}: minimal_pairs must end in {listed(SUFFIXES)}, {OR_COMPRESSED}")
    return SentencePairs(Files((path,)))


def _hub_prefix(data: CorpusConfig, name: str) -> str:
    """Prefix of the names of a split's files on the Hub."""
    assert data.hub is not None
    files = data.hub.files
    if files is None:
        return name
    if name not in files:
        splits = [*files, *["sacrebleu:NAME"] * (not data.is_stream)]
        unknown = unknown_name("split", name, splits)
        raise DataError(unknown.about(f"corpus {data.corpus} on the Hub"))
    return files[name]
