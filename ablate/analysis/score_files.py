"""Scores in files of others: CSV or JSON lines, and what W&B, MLflow and TensorBoard export."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from ablate.analysis.numbers import Number, direction_of
from ablate.errors import UsageError, unknown_name
from ablate.formatting import first_few, plural
from ablate.store.records import LARGEST

NEEDED = (
    "needed are the columns row, seed, metric and value, or row, seed and a column for each metric"
)
# Names of columns in small letters, without the prefixes of MLflow; the first that is there counts.
ROW, SEED = ("row", "group", "runname", "run name", "name"), ("seed", "random_seed")
STATE, RUN = ("state", "status"), ("run", "run_id")
ENDED = ("finished", "done", "diverged")  # states of W&B, MLflow and ablate
_PREFIX = re.compile(r"^(params\.|tags\.mlflow\.|config[./])")
_SEED = re.compile(r"[\s._/-]*seed[\s._=/-]*(\d+)", re.I)  # in the name of a run
_TENSORBOARD = re.compile(r"(?:run-)?(.+)-tag-(.+)")  # the name of a file


class Line(dict[str, Any]):
    """The values of a line by column; `place`: where it stands, for messages."""

    def __init__(self, place: str, values: Mapping[Any, Any]) -> None:
        super().__init__(values)
        self.place = place


def read_lines(files: Sequence[Path]) -> list[Line]:
    """The lines of CSV and JSON files, with their values by column. A scalar of TensorBoard is one
    line: its last value.

    Raises:
        UsageError: a file cannot be read, or is neither.
    """
    lines: list[Line] = []
    for file in files:
        content = list(_lines(file))
        if content and {*content[0]} == {"Wall time", "Step", "Value"}:
            name = _TENSORBOARD.fullmatch(file.stem)
            if name is None:
                raise UsageError(
                    f"{file}: the name of a file of TensorBoard says the run, its seed and the "
                    f"tag, as run-base_seed1-tag-loss.csv"
                )
            try:
                last = max(content, key=lambda line: float(line["Step"]))
            except (TypeError, ValueError):
                raise UsageError(f"{file}: a Step is no number") from None
            values = {"name": name[1], "metric": name[2], "value": last["Value"]}
            content = [Line(last.place, values)]
        for line in content:
            if len(files) > 1:
                line.place = f"{file.name}, {line.place}"
        lines += content
    return lines


def _lines(file: Path) -> Iterator[Line]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: is no text in UTF-8; {NEEDED}") from None
    if not text.lstrip().startswith("{"):
        delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
        reader = csv.DictReader(StringIO(text), delimiter=delimiter, restval="")
        for values in reader:
            if None in values:
                raise UsageError(f"{file}:{reader.line_num}: has more cells than the header")
            yield Line(f"line {reader.line_num}", values)
        return
    for number, line in enumerate(text.splitlines(), 1):
        try:
            values = dict(json.loads(line or "{}", parse_constant=str))
        except (TypeError, ValueError):
            raise UsageError(f"{file}:{number}: is no JSON object; {NEEDED}") from None
        if values:
            yield Line(f"line {number}", values)


def numbers_of(
    lines: Sequence[Mapping[Any, Any]], metrics: Sequence[str] = (), by: Sequence[str] = ()
) -> tuple[list[Number], list[str]]:
    """The scores in lines, and what was assumed to read them.

    Args:
        lines: one for each score, with its metric and value, or for each run.
        metrics: to read, the one of the verdicts first; empty if there is only one.
        by: the columns whose values name a row; empty for the first of ROW.

    Raises:
        UsageError: a column is missing, it is not clear which one is meant, or a value of a metric
            is no number.
    """
    columns: dict[str, str] = {}  # as written, by plain name
    plain: list[Line] = []
    for count, line in enumerate(lines, 1):
        place = line.place if isinstance(line, Line) else f"line {count}"
        plain.append(Line(place, {}))
        for name, value in line.items():
            columns[_plain(name)], plain[-1][_plain(name)] = name, value
    by = _columns_of_row(plain, columns, by)
    plain, notes = _ended(plain, columns)
    rows = [_label(line, by) for line in plain]
    seeds, assumed = _seeds(plain, rows, columns)
    cells, run = _wide(plain, columns, metrics), _first(columns, RUN)
    if {"metric", "value"} <= columns.keys():
        cells = ((at, _text(line, "metric"), line.get("value")) for at, line in enumerate(plain))
    of_metrics: dict[str, list[Number]] = {}
    for index, metric, cell in cells:
        line = plain[index]
        value = _value(cell, line.place, metric)
        if value is not None:
            item, resample = _text(line, "item"), _text(line, "resample").removesuffix(".0")
            number = Number(
                rows[index], seeds[index], metric, value, item, resample, _text(line, run)
            )
            of_metrics.setdefault(metric, []).append(number)
    if len(of_metrics) > 1 and not metrics:
        raise UsageError(
            "which metric is the verdict by? --metric NAME (metrics=[NAME] in Python), and again "
            f"for others to show; there are {first_few(list(of_metrics), 12)}"
        )
    numbers: list[Number] = []
    for name in dict.fromkeys(metrics or of_metrics):
        if name not in of_metrics:
            raise UsageError(unknown_name("metric", name, of_metrics))
        for number in of_metrics[name]:
            if not (number.resample or "0").isdecimal():
                wrong = f'resample "{number.resample}" is not allowed'
                raise UsageError(f"{wrong}: must be a number")
        numbers += of_metrics[name]
    return numbers, notes + assumed


def _columns_of_row(
    lines: Sequence[Line], columns: Mapping[str, str], by: Sequence[str]
) -> Sequence[str]:
    """The columns whose values name a row."""
    for name in by:
        if _plain(name) not in columns:
            raise UsageError(unknown_name("column", name, columns))
    if by:
        return list(map(_plain, by))
    for name in ROW:
        # An export of W&B has a column Group even if no run has one.
        if any(_text(line, name) for line in lines):
            return [name]
    raise UsageError(
        f"no column says the row ({', '.join(ROW)}, or --row COLUMN, rows=[COLUMN] in Python); "
        f"{NEEDED}"
    )


def _ended(lines: list[Line], columns: Collection[str]) -> tuple[list[Line], list[str]]:
    """The lines of runs that have ended, and a note on the others."""
    state, ended, others = _first(columns, STATE), [], Counter[str]()
    for line in lines:
        word = _text(line, state)
        if state not in columns or word.lower() in ENDED:
            ended.append(line)
        else:
            others[word] += 1
    notes = []
    if others:
        states = ", ".join(others)
        notes.append(f"Left out, because not finished ({states}): {others.total()} lines.")
    return ended, notes


def _seeds(
    lines: Sequence[Line], rows: list[str], columns: Collection[str]
) -> tuple[list[int], list[str]]:
    """The seed of each line, and what was assumed. Names of rows that say the seed lose it."""
    column, notes = _first(columns, SEED), []
    texts = [_text(line, column).removesuffix(".0") for line in lines]
    if column in columns:
        if "" in texts:
            raise UsageError(f"{plural(texts.count(''), 'line')} without a seed; {NEEDED}")
    elif all(map(_SEED.search, rows)):
        for index, row in enumerate(rows):
            texts[index], rows[index] = _SEED.findall(row)[0], _SEED.sub("", row, count=1)
    else:
        runs: Counter[tuple[str, str]] = Counter()
        for index, row in enumerate(rows):
            key = (row, _text(lines[index], "metric"))
            runs[key] += 1
            texts[index] = str(runs[key])
        notes.append("No column seed: the runs of each row are numbered in their order.")
    if all(map(str.isdecimal, texts)):
        return list(map(int, texts)), notes
    number_of = dict(zip(dict.fromkeys(texts), itertools.count(1), strict=False))
    return [number_of[text] for text in texts], notes


def _first(columns: Collection[str], names: Sequence[str]) -> str:
    """The first of some columns that is there, else the first of all, whose cells are empty."""
    for name in names:
        if name in columns:
            return name
    return names[0]


@cache
def _plain(name: str) -> str:
    return _PREFIX.sub("", str(name).strip().lower())


def _text(line: Line, column: str) -> str:
    """What a cell has; empty without one, and for what pandas writes where there is none."""
    value = line.get(column)
    if value is None or value != value:
        return ""
    return str(value).strip()


def _number(value: Any) -> float | None:
    if isinstance(value, str) and value.strip().lower() == "diverged":
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _label(line: Line, by: Sequence[str]) -> str:
    if len(by) == 1:
        return _text(line, by[0])
    return " ".join(f"{name}={_text(line, name)}" for name in by)


Cells = Iterator[tuple[int, str, Any]]  # index of the line, metric, and what the cell has


def _wide(lines: Sequence[Line], columns: Mapping[str, str], metrics: Sequence[str]) -> Cells:
    """Of columns that are not asked for, those whose name tells that they are metrics."""
    of_mlflow = any(name.startswith("metrics.") for name in columns)
    numeric: dict[str, str] = {}  # metric -> its column
    wanted = dict.fromkeys(metrics)
    for plain, column in columns.items():
        name = column.removeprefix("metrics.")
        if plain in (*ROW, *SEED, *STATE, *RUN) or (of_mlflow and name == column):
            continue
        if any(_number(line.get(plain)) is not None for line in lines):
            numeric[name] = plain
            if not metrics and (of_mlflow or direction_of(name) is not None):
                wanted[name] = None
    if not wanted:
        raise UsageError(
            "which column is the metric? --metric NAME (metrics=[NAME] in Python); of numbers are "
            f"{first_few(list(numeric), 12) or 'none'}; {NEEDED}"
        )
    for name in wanted:
        if name not in numeric:
            raise UsageError(unknown_name("metric", name, numeric))
        for index, line in enumerate(lines):
            yield index, name, line.get(numeric[name])


def _value(cell: Any, place: str, metric: str) -> float | None:
    """The value of a metric; an empty cell has none.

    A file says `nan` for a run that diverged. In a frame NaN is what pandas has for a cell without
    a value, so that it may be either.
    """
    if isinstance(cell, float) and math.isnan(cell):
        raise UsageError(
            f"{place} has no {metric}, but NaN; leave the line out, or write inf for a "
            "run that diverged"
        )
    value = _number(cell)
    if value is None and cell is not None and str(cell).strip():
        raise UsageError(
            f'{place}: {metric} "{str(cell).strip()[:60]}" is no number; leave it empty, or write '
            f"nan for a run that diverged"
        )
    if (
        value is not None and LARGEST < abs(value) < math.inf
    ):  # as in results: squares must not overflow
        raise UsageError(
            f"{place}: {metric} {value:g} is not allowed: must be between -1e100 and 1e100"
        )
    return value
