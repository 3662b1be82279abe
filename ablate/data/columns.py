"""Rows with columns: TSV, JSON lines and parquet, one file after another."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ablate.data.io import open_bytes, readable
from ablate.data.lines import read_lines
from ablate.errors import DataError, did_you_mean, listed

PARQUET = ".parquet"

# The column of translations in data sets of the Hub: an object with a text for each language.
TRANSLATION = "translation"
_ROWS_AT_ONCE = 10_000
_HALF = re.compile("[\ud800-\udfff]")  # what JSON can write and no text can hold

Row = tuple[int, str, str]  # its number in its file from 1, source, target
Names = tuple[str | int, str | int]  # of the source's column and of the target's


def suffix_of(path: str) -> str:
    """The kind of file by its name's end, archives looked through: `.tsv` for `a/train.tsv.gz`."""
    name = path.rpartition("/")[2].removesuffix(".gz")
    return f".{name.rpartition('.')[2].lower()}" if "." in name else ""


def read_rows(path: str, names: Names | None, languages: tuple[str, str], repaired: Counter[str]) -> Iterator[Row]:
    """The sentence pairs of a file with columns.

    Args:
        path: the file.
        names: of the two columns; None: those of the languages, or the first two of a TSV.
        languages: of source and target.
        repaired: counts what was mended on the way.

    Raises:
        DataError: no such columns, something that is not text, or a broken file; with file and row.
    """
    for number, source, target in _READERS[suffix_of(path)](path, names, languages, repaired):
        yield number, _one_line(source, repaired), _one_line(target, repaired)


def _one_line(text: str, repaired: Counter[str]) -> str:
    """Line ends within a sentence as spaces: references and translations stand a sentence a line."""
    if "\n" not in text and "\r" not in text:
        return text
    repaired["line end within a sentence"] += 1
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")


def _tsv(path: str, names: Names | None, languages: tuple[str, str], repaired: Counter[str]) -> Iterator[Row]:
    lines = enumerate(read_lines(path, repaired), 1)
    places, width = (0, 1), 2
    if names is not None and all(type(name) is int for name in names):
        places, width = (int(names[0]) - 1, int(names[1]) - 1), 0
    elif names is not None:
        head = next(lines, (1, ""))[1].split("\t")
        places, width = (_place(path, names[0], head), _place(path, names[1], head)), len(head)
    needed = max(places) + 1
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) < needed:
            what = "has no tab: a line is SOURCE<tab>TARGET" if len(cells) == 1 else f"has {len(cells)} columns"
            raise DataError(f"{path}:{number}: {what}" + (f", and column {needed} is named" if len(cells) > 1 else ""))
        if len(cells) > width and names is None:
            raise DataError(
                f"{path}:{number}: has {len(cells)} columns: name those of source and target, such as "
                "data.source_column=1 and data.target_column=2"
            )
        yield number, cells[places[0]].strip(), cells[places[1]].strip()


def _place(path: str, name: str | int, head: list[str]) -> int:
    if name not in head:
        raise DataError(f"{path}:1: {_no_column(name, head)}")
    return head.index(str(name))


def _json_lines(path: str, names: Names | None, languages: tuple[str, str], repaired: Counter[str]) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, repaired), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: is not JSON: {str(error).splitlines()[0]}") from None
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: is no JSON object with a text for each language")
        yield number, *_pair(row, names, languages, f"{path}:{number}")


def _parquet(path: str, names: Names | None, languages: tuple[str, str], repaired: Counter[str]) -> Iterator[Row]:
    from pyarrow import ArrowException  # loads slowly: only when a parquet file is read
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with readable(path), open_bytes(path) as stream:
            file = ParquetFile(stream)
            columns = _parquet_columns(path, file.schema_arrow.names, names, languages)
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, *_pair(row, names, languages, f"{path}, row {number}")
    except ArrowException as error:
        raise DataError(f"{path}: is not a whole parquet file: {str(error).splitlines()[0]}") from None


def _parquet_columns(path: str, there: list[str], names: Names | None, languages: tuple[str, str]) -> list[str]:
    wanted = [str(name) for name in names or languages]
    if names is None and not set(wanted) <= set(there) and TRANSLATION in there:
        return [TRANSLATION]
    for name in wanted:
        if name not in there:
            raise DataError(f"{path}: {_no_column(name, there)}")
    return wanted


def _pair(row: dict[str, Any], names: Names | None, languages: tuple[str, str], where: str) -> tuple[str, str]:
    """Source and target of a row; stripped."""
    nested = row.get(TRANSLATION)
    if names is None and languages[0] not in row and isinstance(nested, dict):
        row = nested
    found = []
    for name in names or languages:
        if name not in row:
            raise DataError(f"{where}: {_no_column(name, list(row))}")
        text = row[name]
        if text is None:
            text = ""
        if not isinstance(text, str):
            raise DataError(f'{where}: "{name}" is not text')
        if "\0" in text:
            raise DataError(f"{where}: contains a NUL character: not text")
        if not text.isascii() and _HALF.search(text):
            raise DataError(f"{where}: contains half of a character: not text")
        found.append(text.strip())
    return found[0], found[1]


def _no_column(name: str | int, there: list[str]) -> str:
    near = did_you_mean(str(name), there)
    return (
        f'has no column "{name}"{near}; there are {listed(there[:20]) if there else "none"}: data.source_column and '
        "data.target_column name the two"
    )


_READERS: dict[str, Callable[[str, Names | None, tuple[str, str], Counter[str]], Iterator[Row]]] = {
    ".tsv": _tsv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
    PARQUET: _parquet,
}
SUFFIXES = tuple(_READERS)
