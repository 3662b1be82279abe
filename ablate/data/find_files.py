"""Find the files of a split, by a path that may name a file, several files or a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ablate.config.data import TextFields
from ablate.data.io import (
    COMPRESSED,
    OR_COMPRESSED,
    files_in,
    is_file,
    missing,
    suffix_of,
    uncompressed_name,
)
from ablate.data.locations import Files
from ablate.data.readers import SUFFIXES
from ablate.data.sources import Aligned, Source, Tables
from ablate.errors import DataError, Fault, listed


def find_files(
    path: str,
    suffixes: Sequence[str],
    endings: Sequence[str] = ("",),
    remedy: str = "correct the name or data.folder",
) -> tuple[str, ...]:
    """The file at a path, or the files of a folder.

    Args:
        path: path of the file, with or without its ending, or of the folder.
        suffixes: endings of the files of a folder that are used.
        endings: endings to try for a path without its ending.
        remedy: what to do if nothing exists.

    Raises:
        DataError: there is no such file, or the folder has none of these files.
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


def record_source(path: str, fields: TextFields) -> Source:
    """The source of records: a file with columns, a text file for each field, or a folder of them.

    Raises:
        DataError: a file is missing; the message names it and files with similar names.
    """
    if suffix_of(path) in SUFFIXES:
        if not is_file(path):
            raise missing(path)
        return Tables(Files((path,)), fields)
    files = [_text_file(f"{path}.{label}") for label in fields.labels]
    if all(files):
        _refuse_columns(path, fields)
        return Aligned(Files(tuple(files)), len(files))
    inside = files_in(path)
    if inside is not None:
        return _folder_source(path, inside, fields)
    if is_file(path):
        _refuse_ending(path, fields)
        endings = f"{listed(SUFFIXES)}, {OR_COMPRESSED}"
        raise DataError(f"{path}: a file with columns must end in {endings}")
    absent = fields.labels[files.index("")]
    raise _missing_files(path, f"{path}.{absent}(.gz)", fields.labels)


def _refuse_ending(path: str, fields: TextFields) -> None:
    """Refuse the name of a text file with the ending of its field, which a study leaves out."""
    name = uncompressed_name(path)
    for label in fields.labels:
        if name.endswith(f".{label}"):
            remedy = f"leave out {path.removeprefix(name.removesuffix(f'.{label}'))}"
            raise DataError(Fault(f"{path}: is the text of {label} only", remedy=remedy))


def _text_file(path: str) -> str:
    """The path of a text file, plain or compressed; empty if it does not exist."""
    return next((path + ending for ending in ("", *COMPRESSED) if is_file(path + ending)), "")


def _missing_files(path: str, printed: str, labels: Sequence[str]) -> DataError:
    """The error for text files that do not exist.

    It suggests a table of the same name, or names the files whose names begin with the split's, or
    else the most similar name that a study can give for a split of this folder.
    """
    name = Path(path).name
    folder = Path(path).absolute().parent
    split_names = set[str]()
    tables = list[str]()
    other_languages = list[str]()
    other_endings = list[str]()
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        stem, _, label = uncompressed_name(entry.name).rpartition(".")
        is_table = suffix_of(entry.name) in SUFFIXES
        if stem and label in labels:
            split_names.add(stem)
        elif is_table or entry.is_dir():
            split_names.add(entry.name)
        if not entry.is_file() or not entry.name.startswith(f"{name}."):
            continue
        if is_table:
            tables.append(entry.name)
        elif stem == name:
            other_languages.append(entry.name)
        else:
            other_endings.append(entry.name)
    if tables and not other_languages:
        return missing(path, printed, f'did you mean "{tables[0]}"?', names=())
    if other_languages or other_endings:
        similar = " and ".join(other_languages or other_endings)
        return missing(path, printed, f"its folder has {similar}", names=())
    return missing(path, printed, names=split_names)


def _folder_source(path: str, inside: Sequence[str], fields: TextFields) -> Source:
    """The source of the files in a folder: tables of one format, or a text file for each field."""
    tables = [file for file in inside if suffix_of(file) in SUFFIXES]
    formats = sorted(set(map(suffix_of, tables)))
    if len(formats) > 1:
        names = ", ".join(formats)
        raise DataError(
            f"{path}: holds files of several formats ({names}); keep one, or choose a file"
        )
    if tables:
        return Tables(Files(tuple(tables)), fields)
    groups: dict[str, dict[str, str]] = {}  # path without endings -> label -> file
    for file in inside:
        stem, _, label = uncompressed_name(file).rpartition(".")
        if label in fields.labels:
            groups.setdefault(stem, {})[label] = file
    if not groups:
        endings = ", ".join((*SUFFIXES, *(f".{label}" for label in fields.labels)))
        raise DataError(f"{path}: holds no file that ends in {endings}, {OR_COMPRESSED}")
    files: list[str] = []
    for label in fields.labels:
        for stem, group in sorted(groups.items()):
            if label not in group:
                present = next(iter(group.values()))
                absent = f"{stem.rpartition('/')[2]}.{label}"
                raise DataError(f"{present}: has no counterpart {absent}")
            files.append(group[label])
    _refuse_columns(path, fields)
    return Aligned(Files(tuple(files)), len(fields.labels))


def _refuse_columns(path: str, fields: TextFields) -> None:
    if fields.columns is not None:
        raise DataError(
            f"{path}: is plain text: {' and '.join(fields.settings)} have no effect on it"
        )
