"""From a split's name in the study to its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ablate.config import DataConfig
from ablate.config.data import HUB
from ablate.data.columns import SUFFIXES, Names, suffix_of
from ablate.data.hub import Repository
from ablate.data.io import files_in, is_address, is_file, joined
from ablate.data.named import NAMED
from ablate.data.remote import SACREBLEU, OnHub, TestSet
from ablate.data.sources import Aligned, Generated, Source, Tables
from ablate.errors import DataError, did_you_mean, listed

SPLITS = ("train", "dev", "test")
DOWNLOADS = "downloads"  # in the folder of corpora: what revisions of the Hub's data sets were found to be


def sources_of(
    data: DataConfig, folder: Path, corpora: Path, tell: Callable[[str], None] = lambda line: None
) -> dict[str, Source]:
    """The source of every split, found and not yet read; what has to be downloaded is when it is read.

    Args:
        data: what the study says.
        folder: where its splits lie.
        corpora: where prepared corpora are kept, and what is known of the Hub's data sets.
        tell: told what is downloaded.

    Raises:
        DataError: one line for each split that is not there.
    """
    repository = _repository(data, corpora / DOWNLOADS, tell)
    found: dict[str, Source] = {}
    faults: dict[str, None] = {}
    for split in SPLITS:
        try:
            found[split] = _source_of(data, getattr(data, split), split, folder, repository)
        except DataError as error:
            faults.update(dict.fromkeys(error.lines))
    if faults:
        raise DataError(*faults)
    return found


def _source_of(data: DataConfig, name: str, split: str, folder: Path, repository: Repository | None) -> Source:
    """The source of one split."""
    if data.corpus == "toy":
        return Generated(split)
    if name.startswith(SACREBLEU):
        return TestSet(name.removeprefix(SACREBLEU), data.languages)
    if repository is None or is_address(name):
        return files_source(joined(folder, name), data.languages, columns(data))
    published = NAMED.get(data.corpus)
    beginning = name
    if published is not None:
        if name not in published.splits:
            near = did_you_mean(name, published.splits) or f"; there are {listed(published.splits)}"
            raise DataError(f'corpus {data.corpus} on the Hub has no split "{name}"{near}, or sacrebleu:NAME')
        beginning = published.splits[name].format(config=published.configs.get(data.direction, ""))
    return OnHub(repository, beginning, columns(data), data.languages)


def _repository(data: DataConfig, records: Path, tell: Callable[[str], None]) -> Repository | None:
    """The data set of the Hub that the study's corpus is; None where it is in files or generated."""
    published = NAMED.get(data.corpus)
    if published is not None and data.folder is None:
        return Repository(published.repository, published.revision, records, tell, published.sha256)
    if data.corpus.startswith(HUB):
        name, _, revision = data.corpus.removeprefix(HUB).partition("@")
        return Repository(name, revision or "main", records, tell, {})
    return None


def columns(data: DataConfig) -> Names | None:
    """The columns that the study names, if it does."""
    if data.source_column is None or data.target_column is None:
        return None
    return data.source_column, data.target_column


def files_source(path: str, languages: tuple[str, str], names: Names | None = None) -> Source:
    """A split in files: a file with columns, a file a language, or a folder of either.

    Raises:
        DataError: they are not there; the message names what was looked for.
    """
    if suffix_of(path) in SUFFIXES:
        if not is_file(path):
            raise DataError(f"there is no {path}: data.folder says where the splits lie")
        return Tables((path,), names, languages)
    pair = tuple(_first([f"{path}.{language}", f"{path}.{language}.gz"]) for language in languages)
    if all(pair):
        _refuse_names(path, names)
        return Aligned(((str(pair[0]),), (str(pair[1]),)))
    inside = files_in(path)
    if inside is not None:
        return _folder_source(path, inside, languages, names)
    missing = languages[pair.index(None)]
    raise DataError(f"there is no {path}.{missing} nor {path}.{missing}.gz: data.folder says where the splits lie")


def _folder_source(path: str, inside: list[str], languages: tuple[str, str], names: Names | None) -> Source:
    tables = [file for file in inside if suffix_of(file) in SUFFIXES]
    if tables:
        kinds = sorted({suffix_of(file) for file in tables})
        if len(kinds) > 1:
            raise DataError(f"{path}: holds files of several kinds ({', '.join(kinds)}): keep one, or name a file")
        return Tables(tuple(tables), names, languages)
    sides = [
        {file.removesuffix(".gz").removesuffix(end): file for file in inside if file.removesuffix(".gz").endswith(end)}
        for end in (f".{language}" for language in languages)
    ]
    alone = sorted(set(sides[0]) ^ set(sides[1]))
    if alone:
        file = sides[0].get(alone[0]) or sides[1][alone[0]]
        raise DataError(f"{file}: has no counterpart in the other language")
    if not sides[0]:
        wanted = ", ".join((*SUFFIXES, *(f".{language}" for language in languages)))
        raise DataError(f"{path}: holds no file that ends in {wanted}, or these with .gz")
    _refuse_names(path, names)
    stems = sorted(sides[0])
    return Aligned(([sides[0][stem] for stem in stems], [sides[1][stem] for stem in stems]))


def _refuse_names(path: str, names: Names | None) -> None:
    if names is not None:
        raise DataError(f"{path}: is plain text: data.source_column and data.target_column have no effect on it")


def _first(candidates: list[str]) -> str | None:
    return next((path for path in candidates if is_file(path)), None)
