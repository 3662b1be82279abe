"""Scores in files of others: CSV or JSON lines, and what W&B, MLflow and TensorBoard export."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

from ablate.analysis.numbers import Number, direction_of
from ablate.errors import UsageError, unknown_name
from ablate.formatting import first_few, plural

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

Line = Mapping[str, Any]


def read_lines(files: Iterable[Path]) -> list[Line]:
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
            last = max(content, key=lambda line: float(line["Step"]))
            content = [{"name": name[1], "metric": name[2], "value": last["Value"]}]
        lines += content
    return lines


def _lines(file: Path) -> Iterable[Line]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: is no text in UTF-8; {NEEDED}") from None
    if not text.lstrip().startswith("{"):
        delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
        return csv.DictReader(StringIO(text), delimiter=delimiter, restval="")
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            lines.append(dict(json.loads(line or "{}", parse_constant=str)))
        except (TypeError, ValueError):
            raise UsageError(f"{file}:{number}: is no JSON object; {NEEDED}") from None
    return [line for line in lines if line]


def numbers_of(
    lines: Sequence[Line], metrics: Sequence[str] = (), by: Sequence[str] = ()
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
    written = dict.fromkeys(name for line in lines for name in line)
    columns = {_plain(name): name for name in written}
    by = _columns_of_row(lines, columns, by)
    lines, notes = _ended(lines, _first(columns, STATE))
    names = [_label(line, [columns[_plain(name)] for name in by]) for line in lines]
    names, seeds, assumed = _seeds(lines, names, columns)
    notes += assumed
    is_long = {"metric", "value"} <= columns.keys()
    values = _long(lines, columns) if is_long else _wide(lines, columns, metrics)
    known = list(dict.fromkeys(metric for _, metric, _ in values))
    if len(known) > 1 and not metrics:
        raise UsageError(
            f"which metric is the verdict by? --metric NAME, and again for others to show; there "
            f"are {first_few(known, 12)}"
        )
    for name in metrics:
        if name not in known:
            raise UsageError(unknown_name("metric", name, known))
    items, resamples = (_texts(lines, columns.get(key)) for key in ("item", "resample"))
    wrong = {text for text in set(resamples) if not (text or "0").removesuffix(".0").isdecimal()}
    runs = _texts(lines, _first(columns, RUN))
    of_metric: dict[str, list[Number]] = {metric: [] for metric in metrics or known}
    for i, metric, value in values:
        if metric in of_metric:
            if resamples[i] in wrong:
                raise UsageError(f'resample "{resamples[i]}" is not allowed: must be a number')
            number = Number(names[i], seeds[i], metric, value, items[i], resamples[i], runs[i])
            of_metric[metric].append(number)
    return list(chain.from_iterable(of_metric.values())), notes


def _columns_of_row(
    lines: Sequence[Line], columns: Mapping[str, str], by: Sequence[str]
) -> Sequence[str]:
    """The columns whose values name a row."""
    for name in by:
        if _plain(name) not in columns:
            raise UsageError(unknown_name("column", name, columns))
    if by:
        return by
    for name in ROW:
        # An export of W&B has a column Group even if no run has one.
        if any(_text(line, columns.get(name)) for line in lines):
            return [name]
    raise UsageError(f"no column says the row ({', '.join(ROW)}, or --row COLUMN); {NEEDED}")


def _ended(lines: Sequence[Line], state: str | None) -> tuple[Sequence[Line], list[str]]:
    """The lines of runs that have ended, and a note on the others."""
    states = Counter(_text(line, state) for line in lines if state)
    open_states = [word for word in states if word.lower() not in ENDED]
    if not open_states:
        return lines, []
    count = sum(states[word] for word in open_states)
    note = f"Left out, because not finished ({', '.join(open_states)}): {count} lines."
    return [line for line in lines if _text(line, state) not in open_states], [note]


def _seeds(
    lines: Sequence[Line], names: list[str], columns: Mapping[str, str]
) -> tuple[list[str], list[int], list[str]]:
    """The names of the rows without a seed, the seed of each line, and what was assumed."""
    column, notes = _first(columns, SEED), []
    texts = [_text(line, column).removesuffix(".0") for line in lines]
    if column is not None:
        if "" in texts:
            raise UsageError(f"{plural(texts.count(''), 'line')} without a seed; {NEEDED}")
    elif all(map(_SEED.search, names)):
        texts = [_SEED.findall(name)[0] for name in names]
        names = [_SEED.sub("", name, count=1) for name in names]
    else:
        runs: Counter[tuple[str, str]] = Counter()
        for index, (name, line) in enumerate(zip(names, lines, strict=True)):
            key = (name, _text(line, columns.get("metric")))
            runs[key] += 1
            texts[index] = str(runs[key])
        notes.append("No column seed: the runs of each row are numbered in their order.")
    if all(text.isdecimal() for text in texts):
        return names, [int(text) for text in texts], notes
    number_of = {text: index for index, text in enumerate(dict.fromkeys(texts), 1)}
    return names, [number_of[text] for text in texts], notes


def _first(columns: Mapping[str, str], names: Sequence[str]) -> str | None:
    """The first of some columns that is there."""
    return next((columns[name] for name in names if name in columns), None)


def _plain(name: str) -> str:
    return _PREFIX.sub("", str(name).strip().lower())


def _text(line: Line, column: str | None) -> str:
    """What a cell has; empty without one, and for what pandas writes where there is none."""
    value = line.get(column) if column else None
    return "" if value is None or value != value else str(value).strip()


def _texts(lines: Sequence[Line], column: str | None) -> list[str]:
    """The same of every line."""
    return [_text(line, column) for line in lines] if column else [""] * len(lines)


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
    return " ".join(f"{_plain(name)}={_text(line, name)}" for name in by)


Values = list[tuple[int, str, float]]  # index of the line, metric and value


def _long(lines: Sequence[Line], columns: Mapping[str, str]) -> Values:
    values: Values = []
    for index, line in enumerate(lines):
        _add(values, index, line, columns["value"], _text(line, columns["metric"]))
    return values


def _wide(lines: Sequence[Line], columns: Mapping[str, str], metrics: Sequence[str]) -> Values:
    """Of columns that are not asked for, those whose name tells that they are metrics."""
    of_mlflow = any(name.startswith("metrics.") for name in columns)
    numeric: dict[str, str] = {}  # metric -> its column
    for plain, column in columns.items():
        name = column.removeprefix("metrics.")
        if plain in (*ROW, *SEED, *STATE, *RUN) or (of_mlflow and name == column):
            continue
        if any(_number(line.get(column)) is not None for line in lines):
            numeric[name] = column
    wanted = metrics or [name for name in numeric if of_mlflow or direction_of(name) is not None]
    if not wanted:
        raise UsageError(
            f"which column is the metric? --metric NAME; of numbers are "
            f"{first_few(list(numeric), 12) or 'none'}; {NEEDED}"
        )
    values: Values = []
    for name in wanted:
        if name not in numeric:
            raise UsageError(unknown_name("metric", name, numeric))
        for index, line in enumerate(lines):
            _add(values, index, line, numeric[name], name)
    return values


def _add(values: Values, index: int, line: Line, column: str, metric: str) -> None:
    """Add the value of a metric; an empty cell has none.

    A file says `nan` for a run that diverged. In a frame NaN is what pandas has for a cell without
    a value, so that it may be either.
    """
    if isinstance(line.get(column), float) and math.isnan(line[column]):
        raise UsageError(
            f"line {index + 1} has no {metric}, but NaN; leave the line out, or write inf for a "
            "run that diverged"
        )
    number, text = _number(line.get(column)), _text(line, column)
    if number is not None:
        values.append((index, metric, number))
    elif text:
        raise UsageError(
            f'{metric} "{text[:60]}" is no number; leave it empty, or write nan for a run that '
            f"diverged"
        )
