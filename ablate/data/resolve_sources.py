"""Locate the source of each split of a study: files, the Hub, a test set of sacreBLEU, or a
generator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from ablate.config import DataConfig
from ablate.config.data import CorpusConfig, HubData, TextFields
from ablate.config.language_data import LanguageData
from ablate.config.parsing_data import WSJ, WSJ_SECTIONS, ParsingData
from ablate.data import toy
from ablate.data.hub import Repository, repository_of
from ablate.data.io import files_in, is_address, is_file, joined, missing
from ablate.data.readers import SUFFIXES, suffix_of
from ablate.data.sources import (
    SACREBLEU,
    Aligned,
    Generated,
    HubSplit,
    SacrebleuSet,
    Tables,
    TextSource,
    Treebank,
)
from ablate.data.stream_sources import StreamSource, resolve_streams
from ablate.errors import DataError, did_you_mean
from ablate.store.corpora import remembered

SPLITS = ("train", "dev", "test")
TREE_SUFFIXES = (".mrg", ".ptb", ".parse", ".tree", ".trees", ".txt")


def resolve_sources(
    data: DataConfig, folder: Path, corpora: Path, log: Callable[[str], None] = lambda line: None
) -> dict[str, TextSource]:
    """The source of every split. Files are located but not read, and nothing is downloaded yet.

    Args:
        data: the study's data settings.
        folder: the folder of its files.
        corpora: the folder of prepared corpora, which also keeps records of the Hub's data sets.
        log: receives a line for each download.

    Raises:
        DataError: splits are missing; one line for each.
    """
    hub = data.hub
    repository = repository_of(hub, corpora, log)
    sources: dict[str, TextSource] = {}
    # A dict in place of a set, because it keeps the order. Dev and test may name the same missing
    # file.
    faults: dict[str, None] = {}
    for split in SPLITS:
        try:
            sources[split] = _resolve(data, getattr(data, split), split, folder, hub, repository)
        except DataError as error:  # collected, so that a user sees every missing split at once
            faults.update(dict.fromkeys(error.lines))
    if faults:
        raise DataError(*faults)
    return sources


def _resolve_any(
    data: CorpusConfig, folder: Path, corpora: Path
) -> Mapping[str, TextSource | StreamSource]:
    """The source of every split, of records or of a stream."""
    if isinstance(data, LanguageData):
        return resolve_streams(data, folder, corpora)
    assert isinstance(data, DataConfig)
    return resolve_sources(data, folder, corpora)


def source_faults(data: CorpusConfig, folder: Path, corpora: Path) -> tuple[str, ...]:
    """An error line for each missing split. Reads and downloads nothing."""
    try:
        _resolve_any(data, folder, corpora)
    except DataError as error:
        return error.lines
    return ()


def is_other_text(data: CorpusConfig, folder: Path, corpora: Path, used: Collection[str]) -> bool:
    """Whether a study's files may have changed since these corpora were made; compares sizes and
    times only.

    False if files are missing, and for corpora that are downloaded or generated.
    """
    try:
        sources = _resolve_any(data, folder, corpora).values()
        # A signature of a download may need the network.
        if (
            data.hub is not None
            or data.generated
            or any(isinstance(source, SacrebleuSet) for source in sources)
        ):
            return False
        signature = [source.signature() for source in sources]
    except DataError:
        return False
    return remembered(data, corpora, signature) not in used


def _resolve(
    data: DataConfig,
    name: str,
    split: str,
    folder: Path,
    hub: HubData | None,
    repository: Repository | None,
) -> TextSource:
    """The source of one split."""
    if isinstance(data, ParsingData):
        return Generated(split, toy.trees) if data.generated else _treebank(data, name, folder)
    if data.generated:
        return Generated(split)
    if name.startswith(SACREBLEU):
        return SacrebleuSet(name.removeprefix(SACREBLEU), data.labels)
    if hub is None or repository is None or is_address(name):
        return files_source(joined(folder, name), data.text_fields)
    prefix = name
    if hub.files is not None:
        if name not in hub.files:
            near = did_you_mean(name, hub.files) or f"; its splits are {', '.join(hub.files)}"
            raise DataError(
                f'corpus {data.corpus} on the Hub has no split "{name}"{near}; sacrebleu:NAME is '
                f"also allowed"
            )
        prefix = hub.files[name]
    return HubSplit(repository, prefix, data.text_fields)


def _treebank(data: ParsingData, name: str, folder: Path) -> Treebank:
    """The trees of a file, of a folder, or of sections of the WSJ."""
    sections = WSJ_SECTIONS.fullmatch(name) if data.corpus == WSJ else None
    if sections is None:
        return Treebank(_tree_files(joined(folder, name)))
    first = int(sections[1])
    numbers = range(first, int(sections[2] or first) + 1)
    remedy = "set data.folder to the folder of the WSJ's sections, which are licensed (LDC99T42)"
    folders = [_tree_files(joined(folder, f"{number:02d}"), remedy) for number in numbers]
    return Treebank([file for files in folders for file in files])


def _tree_files(path: str, remedy: str = "correct the name or data.folder") -> list[str]:
    if is_file(path):
        return [path]
    inside = files_in(path)
    if inside is None:
        raise missing(path, remedy=remedy)
    files = [file for file in inside if suffix_of(file) in TREE_SUFFIXES]
    if not files:
        raise DataError(
            f"{path}: holds no file that ends in {', '.join(TREE_SUFFIXES)}, or these with .gz"
        )
    return files


def files_source(path: str, fields: TextFields) -> TextSource:
    """The source of a split in files: a file with columns, a text file per field, or a folder of
    either.

    Raises:
        DataError: the files are missing; the message names them.
    """
    if suffix_of(path) in SUFFIXES:
        if not is_file(path):
            raise missing(path)
        return Tables((path,), fields)
    files = [_first([f"{path}.{label}", f"{path}.{label}.gz"]) for label in fields.labels]
    if None not in files:
        _refuse_columns(path, fields)
        return Aligned(tuple((str(file),) for file in files))
    inside = files_in(path)
    if inside is not None:
        return _folder_source(path, inside, fields)
    shown = f"{path}.{fields.labels[files.index(None)]}(.gz)"
    beside = _other_endings(path)
    if beside:
        raise missing(path, shown, f"its folder has {' and '.join(beside)}", names=())
    raise missing(path, shown, names=_written_names(path, fields.labels))


def _other_endings(path: str) -> list[str]:
    """Text files with the name of a split and another ending, such as that of the other
    language.
    """
    folder = Path(path).absolute().parent
    names = [entry.name for entry in folder.iterdir() if entry.is_file()] if folder.is_dir() else []
    same = [
        name for name in names if name.removesuffix(".gz").rpartition(".")[0] == Path(path).name
    ]
    return sorted(name for name in same if suffix_of(name) not in SUFFIXES)


def _written_names(path: str, labels: Sequence[str]) -> set[str]:
    """Names beside `path` that a study may write: files with columns, folders, and text files
    without their ending.
    """
    folder = Path(path).absolute().parent
    names = set()
    for entry in folder.iterdir() if folder.is_dir() else ():
        stem, _, label = entry.name.removesuffix(".gz").rpartition(".")
        if stem and label in labels:
            names.add(stem)
        elif suffix_of(entry.name) in SUFFIXES or entry.is_dir():
            names.add(entry.name)
    return names


def _folder_source(path: str, inside: list[str], fields: TextFields) -> TextSource:
    tables = [file for file in inside if suffix_of(file) in SUFFIXES]
    if tables:
        kinds = sorted({suffix_of(file) for file in tables})
        if len(kinds) > 1:
            raise DataError(
                f"{path}: holds files of several formats ({', '.join(kinds)}); keep one, or choose "
                f"a file"
            )
        return Tables(tuple(tables), fields)
    by_label = {
        label: {
            file.removesuffix(".gz").removesuffix(f".{label}"): file
            for file in inside
            if file.removesuffix(".gz").endswith(f".{label}")
        }
        for label in fields.labels
    }
    stems = sorted(set().union(*by_label.values()))
    for stem in stems:
        for label, files in by_label.items():
            if stem not in files:
                other = next(files[stem] for files in by_label.values() if stem in files)
                raise DataError(f"{other}: has no counterpart {stem.rpartition('/')[2]}.{label}")
    if not stems:
        endings = ", ".join((*SUFFIXES, *(f".{label}" for label in fields.labels)))
        raise DataError(f"{path}: holds no file that ends in {endings}, or these with .gz")
    _refuse_columns(path, fields)
    return Aligned(tuple([files[stem] for stem in stems] for files in by_label.values()))


def _refuse_columns(path: str, fields: TextFields) -> None:
    if fields.columns is not None:
        raise DataError(
            f"{path}: is plain text: {' and '.join(fields.settings)} have no effect on it"
        )


def _first(candidates: list[str]) -> str | None:
    return next((path for path in candidates if is_file(path)), None)
