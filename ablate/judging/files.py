"""Read files of scores: CSV, JSON lines, JSON arrays, and scalars of TensorBoard."""

from __future__ import annotations

import csv
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from ablate.errors import Fault, Mark, UsageError, no_such_file
from ablate.judging.columns import EXPECTED_COLUMNS, Line

_COMMENT = re.compile(r"\s*#(\s+\S|[^\W\d])")  # not #1, which may number a line or a row
_TENSORBOARD = re.compile(r"(?:run-)?(.+)-tag-(.+)")  # name of a file: run, tag


def read_lines(files: Sequence[Path]) -> list[Line]:
    """Read the lines of CSV and JSON files. The file of a TensorBoard scalar gives one line: the
    value at the last step.

    Raises:
        UsageError: a file cannot be read, is neither CSV nor JSON, or has no lines.
    """
    lines: list[Line] = []
    for file in files:
        content = list(_lines(file))
        if not content:
            raise _error(file, "has no lines of scores", EXPECTED_COLUMNS)
        if {*content[0].cells} == {"Wall time", "Step", "Value"}:
            content = [_last_value(file, content)]
        for line in content:
            place = line.place if len(files) == 1 else f"{file.name}, {line.place}"
            lines.append(line._replace(place=place))
    return lines


def _error(file: Path, problem: str, remedy: str = "", line: int = 0) -> UsageError:
    """The error of a file, or of one of its lines, from 1."""
    return UsageError(Fault(problem, remedy=remedy, place=Mark(str(file), line)))


def _last_value(file: Path, content: Sequence[Line]) -> Line:
    """The value of a TensorBoard scalar at the last step.

    A run that resumes from a checkpoint logs some steps again: then the value logged last is used.
    """
    name = _TENSORBOARD.fullmatch(file.stem)
    if name is None:
        problem = "the name of a TensorBoard file must give the run, its seed and the tag"
        raise _error(file, problem, "rename it as run-base_seed1-tag-loss.csv")
    logged: list[tuple[float, float, int]] = []  # (step, wall time, index of the line)
    for index, line in enumerate(content):
        try:
            step, time = float(line.cells["Step"]), float(line.cells["Wall time"])
        except (TypeError, ValueError):
            step = time = math.nan
        if not (math.isfinite(step) and math.isfinite(time)):
            fault = Fault("a Step or a Wall time is not a number", remedy="remove the line")
            raise UsageError(line.located(fault))
        logged.append((step, time, index))
    last_step, _, last_index = max(logged)
    last = content[last_index]
    value = last.cells["Value"]
    cells = {"name": name[1], "metric": name[2], "value": value, "step": f"{last_step:g}"}
    n_at_last_step = sum(step == last_step for step, _, _ in logged)
    return last._replace(cells=cells, n_replaced=n_at_last_step - 1)


def _lines(file: Path) -> Iterator[Line]:
    """The lines of a file, whose format follows from its first character."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(no_such_file(file, Path.is_file)) from None
    except IsADirectoryError:
        raise _error(file, "is a folder", _files_in(file)) from None
    except OSError as error:
        raise _error(file, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise _error(file, "is not UTF-8 text", EXPECTED_COLUMNS) from None
    first = text.lstrip()[:1]
    if first == "{":
        return _json_lines(file, text)
    if first == "[":
        return _json_array(file, text)
    return _csv_lines(file, text)


def _files_in(folder: Path) -> str:
    """What to do about a folder: give the files of scores in it."""
    endings = {path.suffix for path in folder.iterdir()}
    for ending in (".csv", ".tsv", ".jsonl", ".json"):
        if ending in endings:
            return f"give its files: ablate judge {shlex.quote(str(folder))}/*{ending}"
    return "give files"


def _csv_lines(file: Path, text: str) -> Iterator[Line]:
    delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
    reader = csv.DictReader(StringIO(text), delimiter=delimiter)
    try:
        for name, count in Counter(reader.fieldnames or ()).items():
            if count > 1 and name:
                remedy = "rename or remove one of them"
                raise _error(file, f'{count} columns are named "{name}"', remedy)
        for values in reader:
            # Such as a decimal comma without quotes, which would shift the cells after it.
            if None in values or None in values.values():
                names = reader.fieldnames or [""]
                for place, cell in ((1, names[0]), (reader.line_num, values[names[0]])):
                    if _COMMENT.match(cell):
                        problem = "is a comment, and CSV has none"
                        raise _error(file, problem, "remove the line", place)
                number = "more" if None in values else "fewer"
                problem = f"has {number} cells than the header"
                remedy = f"the header separates its cells by {delimiter!a}"
                raise _error(file, problem, remedy, reader.line_num)
            yield _line(file, reader.line_num, values)
    except csv.Error as error:  # a cell of more than 131,072 characters
        raise _error(file, str(error), "is a quote missing?", reader.line_num + 1) from None


def _line(file: Path, number: int, values: Mapping[str, Any]) -> Line:
    """A line of a file, by its number from 1."""
    return Line(f"line {number}", values, mark=Mark(str(file), number))


def _json_lines(file: Path, text: str) -> Iterator[Line]:
    # Not `splitlines`: JSON strings may contain other line separators, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        try:
            values = _JSON.decode(line.strip() or "{}")
            if not isinstance(values, dict):
                raise ValueError
        except _NamedTwiceError as error:
            problem = f'two values are named "{error}"'
            raise _error(file, problem, "remove one of them", number) from None
        except (ValueError, RecursionError):
            raise _error(file, "is not a JSON object", EXPECTED_COLUMNS, number) from None
        if values:
            yield _line(file, number, values)


def _json_array(file: Path, text: str) -> Iterator[Line]:
    try:
        entries = _JSON.decode(text.strip())
    except _NamedTwiceError as error:
        problem = f'two values of an entry are named "{error}"'
        raise _error(file, problem, "remove one of them") from None
    except (ValueError, RecursionError):
        raise _error(file, "is not an array of JSON objects", EXPECTED_COLUMNS) from None
    for number, values in enumerate(entries, 1):
        if not isinstance(values, dict):
            raise _error(file, f"entry {number} is not a JSON object", EXPECTED_COLUMNS)
        yield Line(f"entry {number}", values)


class _NamedTwiceError(Exception):
    """A JSON object has two values with the same name."""


def _object(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise _NamedTwiceError(name)
        values[name] = value
    return values


# Keep numbers as text: 1e400 would become infinity, which means that a run diverged.
_JSON = json.JSONDecoder(object_pairs_hook=_object, parse_constant=str, parse_float=str)
