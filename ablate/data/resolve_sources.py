"""Locate the source of each split of a study: files, the Hub, a test set of sacreBLEU, or a
generator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ablate.config.data import FILES, CorpusConfig, DataConfig, TextFields
from ablate.config.language_data import BYTES, SAME_AS_DEV, LanguageData, share_of
from ablate.config.parsing_data import WSJ, WSJ_SECTIONS, ParsingData
from ablate.config.synthetic_data import SyntheticData
from ablate.data import toy
from ablate.data.hub import DOWNLOADS, Repository
from ablate.data.io import files_in, is_address, is_file, joined, missing
from ablate.data.locations import SACREBLEU, Files, Generator, HubFiles, SacrebleuSet
from ablate.data.readers import SUFFIXES, TABLES, suffix_of
from ablate.data.sources import (
    Aligned,
    Generated,
    GeneratedText,
    Part,
    Source,
    Tables,
    TextFiles,
    Treebank,
    is_local,
)
from ablate.errors import DataError, did_you_mean, listed
from ablate.store.corpora import remembered

SPLITS = ("train", "dev", "test")
TREE_SUFFIXES = (".mrg", ".ptb", ".parse", ".tree", ".trees", ".txt")
TEXT_SUFFIX = ".txt"
SMALL_TEXT = 2_000_000  # bytes of files whose vocabulary is learned in a moment


def resolve_sources(
    data: CorpusConfig, folder: Path, corpora: Path, log: Callable[[str], None] = lambda line: None
) -> dict[str, Source]:
    """The source of every split. Files are located but not read, and nothing is downloaded yet.

    Args:
        data: the study's data settings.
        folder: the folder of its files.
        corpora: the folder of prepared corpora, which also keeps records of the Hub's data sets.
        log: receives a line for each download.

    Raises:
        DataError: splits are missing; one line for each.
    """
    repository = Repository(data.hub, corpora / DOWNLOADS, log) if data.hub else None
    sources: dict[str, Source] = {}
    # A dict in place of a set, because it keeps the order. Dev and test may name the same missing
    # file.
    faults: dict[str, None] = {}
    for split in SPLITS:
        name = getattr(data, split)
        if isinstance(data, LanguageData) and _is_of_another_split(data, split):
            continue
        try:
            sources[split] = _located(data, name, split, folder, repository)
        except DataError as error:  # collected, so that a user sees every missing split at once
            faults.update(dict.fromkeys(error.lines))
    if faults:
        raise DataError(*faults)
    if isinstance(data, LanguageData):
        if data.corpus == FILES:
            _refuse_unused(data, sources)
        sources = _with_parts(data, sources)
    return sources


def source_faults(data: CorpusConfig, folder: Path, corpora: Path) -> tuple[str, ...]:
    """An error line for each missing split. Reads and downloads nothing."""
    try:
        resolve_sources(data, folder, corpora)
    except DataError as error:
        return error.lines
    return ()


def is_other_text(data: CorpusConfig, folder: Path, corpora: Path, used: Collection[str]) -> bool:
    """Whether a study's files may have changed since these corpora were made; compares lengths and
    times only.

    False if files are missing, and for corpora that are downloaded or generated.
    """
    try:
        sources = resolve_sources(data, folder, corpora).values()
        if data.hub is not None or not all(is_local(source) for source in sources):
            return False  # the signature of a download may need the network
        signature = [source.signature() for source in sources]
    except DataError:
        return False
    return remembered(data, corpora, signature) not in used


def learns_in_a_moment(data: CorpusConfig, folder: Path, corpora: Path) -> bool:
    """Whether a vocabulary is learned on text that is at hand and takes less than a second.

    False for generated text that has enough pieces in any case.

    Raises:
        DataError: splits are missing.
    """
    if isinstance(data, SyntheticData):
        return False
    assert isinstance(data, DataConfig | LanguageData)
    if data.tokenizer == BYTES:
        return False
    if data.generated:
        return data.tokenizer != "bpe" or data.vocab_size > toy.PIECES
    train = resolve_sources(data, folder, corpora)["train"]
    paths = list(train.location.paths()) if is_local(train) else []
    if not paths or any(map(is_address, paths)):
        return False
    return sum(Path(path).stat().st_size for path in paths) <= SMALL_TEXT


def _located(
    data: CorpusConfig, name: str, split: str, folder: Path, repository: Repository | None
) -> Source:
    """The source of one split."""
    if data.generated:
        return _generated(data, split)
    if isinstance(data, ParsingData):
        return _treebank(data, name, folder)
    if name.startswith(SACREBLEU) and not data.is_stream:
        location = SacrebleuSet(name.removeprefix(SACREBLEU), data.labels)
        return Aligned(location, len(data.fields))
    if repository is None or is_address(name):
        path = joined(folder, name)
        if isinstance(data, LanguageData):
            return TextFiles(Files(_text_files(path)), data)
        return files_source(path, data.text_fields)
    prefix = _hub_prefix(data, name)
    if isinstance(data, LanguageData):
        return TextFiles(HubFiles(repository, prefix, at_once=False), data)
    return Tables(HubFiles(repository, prefix, at_once=True), data.text_fields)


def _generated(data: CorpusConfig, split: str) -> Source:
    """A split of the toy corpus, or of generated items."""
    if isinstance(data, SyntheticData):
        from ablate.data.items import VERSION  # numpy, which no plan needs
        from ablate.data.items_form import DrawnSource

        return DrawnSource(Generator(f"{data.corpus} {VERSION}"), data, split)
    if isinstance(data, LanguageData):
        return GeneratedText(Generator(), split)
    generate = toy.trees if isinstance(data, ParsingData) else toy.generate
    return Generated(Generator(), split, generate)


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


# Streams


def _is_of_another_split(data: LanguageData, split: str) -> bool:
    """Whether a split is a share of the training text, or is the dev split."""
    if data.generated or split == "train":
        return False
    name = getattr(data, split)
    return share_of(name) is not None or (split == "test" and name == SAME_AS_DEV)


def _with_parts(data: LanguageData, sources: dict[str, Source]) -> dict[str, Source]:
    """The source of every split, with shares cut from the end of the training text."""
    whole, end = sources["train"], 1.0 if data.generated else 1.0 - data.held_out
    if end < 1.0 or data.max_bytes is not None:
        sources["train"] = Part(whole.location, whole, 0.0, end, data.max_bytes)
    for split in ("dev", "test"):
        share = share_of(getattr(data, split))
        if share is not None:
            sources[split] = Part(whole.location, whole, end, end + share, data.max_bytes)
            end += share
    sources.setdefault("test", sources["dev"])
    return {split: sources[split] for split in SPLITS}


def _refuse_unused(data: LanguageData, sources: dict[str, Source]) -> None:
    """Refuse settings of tables where every file is plain text."""
    unused = [name for name in ("column", "rows") if getattr(data, name) != data.introduced[name]]
    files = [path for source in sources.values() for path in source.location.paths()]
    if unused and all(suffix_of(path) not in TABLES for path in files):
        raise DataError(
            f"{files[0]}: is plain text: data.{unused[0]} has no effect on it; remove it"
        )


def _text_files(path: str) -> tuple[str, ...]:
    """A file of text, with or without its ending, or the files of a folder."""
    for ending in ("", ".gz", TEXT_SUFFIX, f"{TEXT_SUFFIX}.gz"):
        if is_file(f"{path}{ending}"):
            return (f"{path}{ending}",)
    inside = files_in(path)
    if inside is None:
        raise missing(path)
    return _readable(path, inside, (TEXT_SUFFIX, *TABLES))


def _readable(path: str, inside: Sequence[str], suffixes: Sequence[str]) -> tuple[str, ...]:
    """The files of a folder in one of some formats."""
    files = tuple(file for file in inside if suffix_of(file) in suffixes)
    if not files:
        raise DataError(f"{path}: holds no file that ends in {listed(suffixes)}, or these with .gz")
    return files


# Treebanks


def _treebank(data: ParsingData, name: str, folder: Path) -> Treebank:
    """The trees of a file, of a folder, or of sections of the WSJ."""
    sections = WSJ_SECTIONS.fullmatch(name) if data.corpus == WSJ else None
    if sections is None:
        return Treebank(Files(_tree_files(joined(folder, name))))
    first = int(sections[1])
    remedy = "set data.folder to the folder of the WSJ's sections, which are licensed (LDC99T42)"
    files: list[str] = []
    for number in range(first, int(sections[2] or first) + 1):
        files.extend(_tree_files(joined(folder, f"{number:02d}"), remedy))
    return Treebank(Files(tuple(files)))


def _tree_files(path: str, remedy: str = "correct the name or data.folder") -> tuple[str, ...]:
    if is_file(path):
        return (path,)
    inside = files_in(path)
    if inside is None:
        raise missing(path, remedy=remedy)
    return _readable(path, inside, TREE_SUFFIXES)


# Records


def files_source(path: str, fields: TextFields) -> Source:
    """The source of a split in files: a file with columns, a text file per field, or a folder of
    either.

    Raises:
        DataError: the files are missing; the message names them.
    """
    if suffix_of(path) in SUFFIXES:
        if not is_file(path):
            raise missing(path)
        return Tables(Files((path,)), fields)
    files = [_first([f"{path}.{label}", f"{path}.{label}.gz"]) for label in fields.labels]
    if None not in files:
        _refuse_columns(path, fields)
        return Aligned(Files(tuple(str(file) for file in files)), len(files))
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


def _folder_source(path: str, inside: list[str], fields: TextFields) -> Source:
    tables = [file for file in inside if suffix_of(file) in SUFFIXES]
    if tables:
        kinds = sorted({suffix_of(file) for file in tables})
        if len(kinds) > 1:
            raise DataError(
                f"{path}: holds files of several formats ({', '.join(kinds)}); keep one, or choose "
                f"a file"
            )
        return Tables(Files(tuple(tables)), fields)
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
    ordered = tuple(files[stem] for files in by_label.values() for stem in stems)
    return Aligned(Files(ordered), len(by_label))


def _refuse_columns(path: str, fields: TextFields) -> None:
    if fields.columns is not None:
        raise DataError(
            f"{path}: is plain text: {' and '.join(fields.settings)} have no effect on it"
        )


def _first(candidates: list[str]) -> str | None:
    return next((path for path in candidates if is_file(path)), None)
