"""From a split's name in the study to its source."""

from __future__ import annotations

from pathlib import Path

from ablate.config import DataConfig
from ablate.data.columns import SUFFIXES, Names, suffix_of
from ablate.data.opening import files_in, is_file, joined
from ablate.data.sources import Aligned, Generated, Source, Tables
from ablate.errors import DataError

SPLITS = ("train", "dev", "test")


def sources_of(data: DataConfig, folder: Path) -> dict[str, Source]:
    """The source of every split, found and not yet read.

    Args:
        data: what the study says.
        folder: where its splits lie.

    Raises:
        DataError: one line for each split that is not there.
    """
    found: dict[str, Source] = {}
    faults: dict[str, None] = {}
    for split in SPLITS:
        try:
            found[split] = source_of(data, split, folder)
        except DataError as error:
            faults.update(dict.fromkeys(error.lines))
    if faults:
        raise DataError(*faults)
    return found


def source_of(data: DataConfig, split: str, folder: Path) -> Source:
    """The source of one split."""
    if data.corpus == "toy":
        return Generated(split)
    return files_source(joined(folder, getattr(data, split)), data.languages, columns(data))


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
        raise DataError(
            f"{path}: is plain text, a file a language: data.source_column and target_column have no effect"
        )


def _first(candidates: list[str]) -> str | None:
    return next((path for path in candidates if is_file(path)), None)
