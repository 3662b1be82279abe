"""Read records from text files, TSV, CSV, JSON and Parquet; repairs are counted."""

from __future__ import annotations

import csv
import json
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ablate.config.data import TextFields
from ablate.data.io import (
    MAX_DOCUMENT_BYTES,
    MAX_LINE_BYTES,
    file_lines,
    not_utf8,
    open_bytes,
    readable,
    suffix_of,
    too_long,
)
from ablate.errors import DataError, Fault, Mark, meant_name
from ablate.formatting import plural

PARQUET = ".parquet"
# Many data sets of the Hub have one column of this name, with a text for each label.
_NESTED = "translation"
_ROWS_AT_ONCE = 10_000
_BEGINNING = 4096  # bytes by which an array of JSON is told from JSON Lines
_ARRAY = re.compile(rb"\s*\[\s*(?:\{|\]|$)")
# JSON can escape half a character, which UTF-8 cannot encode.
_SURROGATE = re.compile("[\ud800-\udfff]")

Record = tuple[int, tuple[str, ...]]  # (number in its file, counted from 1; the text of each field)


def read_rows(path: str, fields: TextFields, repaired: Counter[str]) -> Iterator[Record]:
    """The records of a file with columns.

    Args:
        path: a path or an address; its ending is one of SUFFIXES.
        fields: the text fields. If the study chooses no columns, JSON and Parquet have the columns
            of the labels, and a TSV file without a header its first columns.
        repaired: counts repairs by name.

    Raises:
        DataError: a column is missing, a value is not text, or the file is broken; with file and
            row.
    """
    for number, texts in _READERS[suffix_of(path)](path, fields, repaired, MAX_LINE_BYTES):
        line = tuple(_one_line(text.strip(), repaired) for text in texts)
        for text in line:
            if len(text) * 4 >= MAX_LINE_BYTES and len(text.encode()) >= MAX_LINE_BYTES:
                raise too_long(path, number)
        yield number, line


def read_values(path: str, fields: TextFields, repaired: Counter[str]) -> Iterator[tuple[str, ...]]:
    """The texts of a file with columns, unchanged. A text may be as long as a document.

    Arguments and errors as in `read_rows`.
    """
    for _, texts in _READERS[suffix_of(path)](path, fields, repaired, MAX_DOCUMENT_BYTES):
        yield texts


def _one_line(text: str, repaired: Counter[str]) -> str:
    """Replace line ends by spaces: texts and translations are stored one per line."""
    if "\n" not in text and "\r" not in text:
        return text
    repaired["line end within a sentence"] += 1
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")


def _tsv(path: str, fields: TextFields, repaired: Counter[str], longest: int) -> Iterator[Record]:
    """The rows of a TSV file; a header is counted as a repair, unless the study names columns."""
    positions: tuple[int, ...] = ()
    width = len(fields.names)  # number of columns that a row can have if none are chosen
    for number, line in enumerate(file_lines(path, repaired, longest), 1):
        cells = line.split("\t")
        if number == 1:
            positions, is_header = _tsv_columns(path, cells, fields)
            if is_header and not _names_columns(fields):
                repaired["header"] += 1
            if is_header:
                width = len(cells)
                continue
        needed = max(positions) + 1
        if len(cells) < needed:
            if len(cells) == 1:
                form = "<tab>".join(map(str.upper, fields.names))
                raise DataError(f"{path}:{number}: has no tab; each line must be {form}")
            count = plural(len(cells), "column")
            raise DataError(f"{path}:{number}: has {count}, but the study uses column {needed}")
        if len(cells) > width and fields.columns is None:
            names = " and ".join(fields.names)
            example = " and ".join(f"{setting}={n}" for n, setting in enumerate(fields.settings, 1))
            remedy = f"choose those of {names}, for example {example}"
            raise DataError(f"{path}:{number}: has {len(cells)} columns; {remedy}")
        yield number, tuple(cells[position].strip() for position in positions)


def _tsv_columns(
    path: str, first_line: list[str], fields: TextFields
) -> tuple[tuple[int, ...], bool]:
    """Position of each field's column in a TSV file, and whether its first line is a header."""
    is_header = _names_columns(fields) or _named_positions(first_line, fields) is not None
    if is_header and (fields.columns is None or _names_columns(fields)):
        return _header_positions(path, first_line, fields), True
    columns = fields.columns or range(1, len(fields.names) + 1)
    return tuple(int(column) - 1 for column in columns), is_header


def _names_columns(fields: TextFields) -> bool:
    """Whether the study chooses columns by their names in a header."""
    return any(isinstance(column, str) for column in fields.columns or ())


def _csv(path: str, fields: TextFields, repaired: Counter[str], longest: int) -> Iterator[Record]:
    """The rows of a CSV file below its header."""
    lines = (f"{line}\n" for line in file_lines(path, repaired, longest))
    rows = csv.reader(lines, strict=True)
    try:
        header = next(rows, [])
        positions = _header_positions(path, header, fields)
        for cells in filter(None, rows):
            if len(cells) != len(header):
                count = plural(len(cells), "column")
                raise DataError(
                    f"{path}:{rows.line_num}: has {count}, but its header has {len(header)}"
                )
            yield rows.line_num, tuple(cells[position] for position in positions)
    except csv.Error as error:
        raise DataError(f"{path}:{rows.line_num}: is not CSV: {error}") from None


def _header_positions(path: str, header: list[str], fields: TextFields) -> tuple[int, ...]:
    """Position of each field's column, by its name in a header or by its number."""
    if fields.columns is None:
        named = _named_positions(header, fields)
        if named is None:
            raise _no_column(Mark(path, 1), fields.labels[0], header, fields)
        _refuse_repeated(path, header, named)
        return named
    positions = []
    for column in fields.columns:
        if isinstance(column, int):
            if column > len(header):
                count = plural(len(header), "column")
                raise DataError(f"{path}:1: has {count}, but the study uses column {column}")
            positions.append(column - 1)
            continue
        if column not in header:
            raise _no_column(Mark(path, 1), column, header, fields)
        positions.append(header.index(column))
        _refuse_repeated(path, header, positions[-1:])
    return tuple(positions)


def csv_header(path: str) -> list[str]:
    """The first row of a CSV file; empty if there is none, or if it is not CSV."""
    try:
        return next(csv.reader(file_lines(path, Counter())), [])
    except csv.Error:  # which reading the records reports
        return []


def has_header(path: str, fields: TextFields) -> bool:
    """Whether the first line of a TSV names the columns of all fields."""
    first = next(file_lines(path, Counter()), "")
    return _named_positions(first.split("\t"), fields) is not None


def partial_header(path: str, fields: TextFields) -> tuple[str, str]:
    """A name of one field that the first line of a TSV has, and the name of another field that it
    lacks; empty if it has the names of all fields or of none.
    """
    cells = next(file_lines(path, Counter()), "").split("\t")
    header = {cell.strip().casefold() for cell in cells}
    for names in (fields.labels, fields.names):
        present = [name for name in names if name.casefold() in header]
        absent = [name for name in names if name.casefold() not in header]
        if present and absent:
            return present[0], absent[0]
    return "", ""


def _named_positions(cells: list[str], fields: TextFields) -> tuple[int, ...] | None:
    """Position of each field's column, if a line is a header: it has the labels or names of all
    fields. Nobody would notice a header that is trained on as a record.
    """
    header = [cell.strip().casefold() for cell in cells]
    for names in (fields.labels, fields.names):
        wanted = list(map(str.casefold, names))
        if set(wanted) <= set(header):
            return tuple(map(header.index, wanted))
    return None


def _refuse_repeated(path: str, header: Sequence[str], positions: Iterable[int]) -> None:
    """Refuse a header that has the name of one of these columns several times."""
    for name in (header[position] for position in positions):
        if header.count(name) > 1:
            raise DataError(f'{path}:1: has several columns "{name}"; choose one by its number')


def _json(path: str, fields: TextFields, repaired: Counter[str], longest: int) -> Iterator[Record]:
    """The objects of JSON Lines, or of one array, which is read into memory as a whole."""
    if not _is_array(path):
        for number, line in enumerate(file_lines(path, repaired, longest), 1):
            if line.strip():
                place = f"{path}:{number}"
                yield number, _texts(_parsed(line, place), fields, place)
        return
    with readable(path), open_bytes(path) as stream:
        content = stream.read(MAX_DOCUMENT_BYTES)
    if len(content) == MAX_DOCUMENT_BYTES:
        raise DataError(f"{path}: is an array of JSON of 1 GiB or more; use JSON Lines")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    for number, row in enumerate(_parsed(text, path), 1):
        yield number, _texts(row, fields, f"{path}, row {number}")


def _is_array(path: str) -> bool:
    with readable(path), open_bytes(path) as stream:
        return _ARRAY.match(stream.read(_BEGINNING).removeprefix(BOM_UTF8)) is not None


def _parsed(text: str, place: str) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: is not JSON: {str(error).splitlines()[0]}") from None


def _parquet(
    path: str, fields: TextFields, repaired: Counter[str], longest: int
) -> Iterator[Record]:
    from pyarrow import ArrowException  # loads slowly: only when a parquet file is read
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with readable(path), open_bytes(path) as stream:
            file = ParquetFile(stream)
            columns = _parquet_columns(path, file.schema_arrow.names, fields)
            # In batches, because the objects of a large file may not fit into memory.
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield number, _texts(row, fields, f"{path}, row {number}")
    except UnicodeDecodeError:
        raise DataError(f"{path}, rows from {number + 1} on: a value is not valid UTF-8") from None
    except ArrowException as error:
        why = str(error).splitlines()[0]
        raise DataError(f"{path}: is not a complete Parquet file: {why}") from None


def _parquet_columns(path: str, available: list[str], fields: TextFields) -> list[str]:
    wanted = list(map(str, fields.columns or fields.labels))
    if fields.columns is None and not set(wanted) <= set(available) and _NESTED in available:
        return [_NESTED]
    for name in wanted:
        if name not in available:
            raise _no_column(Mark(path), name, available, fields)
    return wanted


def _texts(row: Any, fields: TextFields, place: str) -> tuple[str, ...]:
    """The text of each field in a row of JSON or Parquet."""
    if not isinstance(row, dict):
        keys = " and ".join(fields.labels)
        raise DataError(f"{place}: is not a JSON object with the keys {keys}")
    nested = row.get(_NESTED)
    if fields.columns is None and fields.labels[0] not in row and isinstance(nested, dict):
        row = nested
    texts = []
    for name in fields.columns or fields.labels:
        if name not in row:
            raise _no_column(Mark.parse(place), name, list(row), fields)
        text = "" if row[name] is None else row[name]
        if not isinstance(text, str):
            raise DataError(f'{place}: "{name}" is not text')
        if "\0" in text:
            raise DataError(f"{place}: contains a NUL character: not text")
        if not text.isascii() and _SURROGATE.search(text):
            raise DataError(f"{place}: contains an unpaired surrogate: not text")
        texts.append(text)
    return tuple(texts)


def _no_column(place: Mark, name: str | int, available: list[str], fields: TextFields) -> DataError:
    settings = list(fields.settings)
    if fields.columns and len(settings) == len(fields.columns):  # first the setting that names it
        settings.insert(0, settings.pop(fields.columns.index(name)))
    columns = ", ".join(available[:20]) or "none"
    fault = Fault(
        f'has no column "{name}"; its columns are {columns}',
        fields=tuple(settings),
        remedy=f"set {' and '.join(fields.settings)}",
        place=place,
        meant=meant_name(str(name), available),
        choices=tuple(available),
    )
    return DataError(fault)


_READERS: dict[str, Callable[[str, TextFields, Counter[str], int], Iterator[Record]]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _json,
    ".ndjson": _json,
    ".json": _json,
    PARQUET: _parquet,
}
SUFFIXES = tuple(_READERS)
TABLES = tuple(suffix for suffix in SUFFIXES if suffix not in (".tsv", ".csv"))  # for streams
