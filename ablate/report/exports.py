"""Scores in files of others: CSV or JSON lines, and what W&B, MLflow and TensorBoard export."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from ablate.analysis.numbers import Number, direction_of, metric_of, table_of_numbers
from ablate.analysis.table import Table
from ablate.errors import UsageError, unknown_name
from ablate.formatting import first_few, plural, signed
from ablate.plan.power import power_of_runs
from ablate.stats.stream import Stream

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
            lines.append(dict(json.loads(line or "{}")))
        except (TypeError, ValueError):
            raise UsageError(f"{file}:{number}: is no JSON object; {NEEDED}") from None
    return [line for line in lines if line]


def judged(
    lines: Sequence[Line],
    name: str,
    *,
    base: str | None,
    directions: Mapping[str, bool],
    metrics: Sequence[str] = (),
    by: Sequence[str] = (),
    margin: float | None = None,
) -> Table:
    """The table of the scores in lines, with the power that they had.

    Arguments and errors are those of `numbers_of` and `table_of_numbers`.
    """
    numbers, notes = numbers_of(lines, metrics, by)
    table = table_of_numbers(numbers, name, base, directions, margin)
    power = power_of_runs(table.study, [run for row in table.rows for run in row.runs])
    found = [one.text for one in power if one.sd]
    return replace(table, remarks=(*notes, *found))


def stream_lines(
    lines: Sequence[Line],
    base: str | None,
    directions: Mapping[str, bool],
    metrics: Sequence[str] = (),
    by: Sequence[str] = (),
) -> list[str]:
    """What a gate keeps of a stream of proposals, in sentences.

    Arguments and errors are those of `judged`. The lines are in the order of the runs, base first.
    """
    numbers, _ = numbers_of(lines, metrics, by)
    metric = metric_of(numbers[0].metric, numbers, directions)
    first = numbers[0].row if base is None else base
    if first not in {one.row for one in numbers}:
        raise UsageError(unknown_name("row", first, dict.fromkeys(one.row for one in numbers)))
    stream = Stream(first, metric.more_is_better)
    for one in numbers:
        if one.item or one.resample:
            raise UsageError(f"a stream has a score for each run, without items; got {one.row}")
        if not math.isfinite(one.value) and one.row in (stream.chain[0], stream.chain[-1]):
            raise UsageError(f"{one.row} diverged, and proposals are compared with it")
        stream.add(one.row, one.value)
    found = [
        f"{name}: {one.state} after {plural(len(one.scores), 'run')}"
        + (f", {signed(one.difference, metric.digits)} {metric.title}" if one.difference else "")
        for name, one in stream.proposals.items()
    ]
    found.append(f"Chain: {' -> '.join(stream.chain)}.")
    if stream.gain:
        gain, low, high = (signed(value, metric.digits) for value in stream.gain)
        found.append(
            f"It has gained {gain} {metric.title} [{low}, {high}], by the runs after all proposals."
        )
    if stream.ignored:
        found.append(f"Ignored: {plural(stream.ignored, 'run')} of proposals already decided.")
    return found + stream.next_steps


def numbers_of(
    lines: Sequence[Line], metrics: Sequence[str] = (), by: Sequence[str] = ()
) -> tuple[list[Number], list[str]]:
    """The scores in lines, and what was assumed to read them.

    Args:
        lines: one for each score, with its metric and value, or for each run.
        metrics: to read, the one of the verdicts first; empty if there is only one.
        by: the columns whose values name a row; empty for the first of ROW.

    Raises:
        UsageError: a column is missing, or it is not clear which one is meant.
    """
    columns = {_plain(name): name for line in lines for name in line}
    is_long = {"metric", "value"} <= columns.keys()
    notes = []
    for name in by:
        if _plain(name) not in columns:
            raise UsageError(unknown_name("column", name, columns))
    # An export of W&B has a column Group even if no run has one.
    by = by or [name for name in ROW if any(_text(line, columns.get(name)) for line in lines)][:1]
    if not by:
        raise UsageError(f"no column says the row ({', '.join(ROW)}, or --row COLUMN); {NEEDED}")
    seed, state, run = (
        next((columns[name] for name in names if name in columns), None)
        for names in (SEED, STATE, RUN)
    )
    states = Counter(_text(line, state) for line in lines if state)
    if open_states := [word for word in states if word.lower() not in ENDED]:
        count = sum(states[word] for word in open_states)
        notes.append(f"Left out, because not finished ({', '.join(open_states)}): {count} lines.")
        lines = [line for line in lines if _text(line, state) not in open_states]
    names = [_label(line, [columns[_plain(name)] for name in by]) for line in lines]
    seeds = [_text(line, seed).removesuffix(".0") for line in lines]
    if seed is None and all(map(_SEED.search, names)):
        seeds = [_SEED.findall(name)[0] for name in names]
        names = [_SEED.sub("", name, count=1) for name in names]
    elif seed is None:
        runs: Counter[tuple[str, str]] = Counter()
        for index, (name, line) in enumerate(zip(names, lines, strict=True)):
            runs[key := (name, _text(line, columns.get("metric")))] += 1
            seeds[index] = str(runs[key])
        notes.append("No column seed: the runs of each row are numbered in their order.")
    elif "" in seeds:
        raise UsageError(f"{plural(seeds.count(''), 'line')} without a seed; {NEEDED}")
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
    number_of = {text: index for index, text in enumerate(dict.fromkeys(seeds), 1)}
    if all(text.isdecimal() for text in seeds):
        number_of = {text: int(text) for text in seeds}
    return [
        Number(
            names[index],
            number_of[seeds[index]],
            metric,
            value,
            _text(lines[index], columns.get("item")),
            _text(lines[index], columns.get("resample")),
            _text(lines[index], run),
        )
        for wanted in metrics or known
        for index, metric, value in values
        if metric == wanted
    ], notes


def _plain(name: str) -> str:
    return _PREFIX.sub("", str(name).strip().lower())


def _text(line: Line, column: str | None) -> str:
    """What a cell has; empty without one, and for what pandas writes where there is none."""
    value = line.get(column) if column else None
    return "" if value is None or value != value else str(value).strip()


def _number(value: Any) -> float | None:
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
    found = [(_text(line, columns["metric"]), line[columns["value"]]) for line in lines]
    return [
        (index, metric, number)
        for index, (metric, value) in enumerate(found)
        if (number := _number(value)) is not None
    ]


def _wide(lines: Sequence[Line], columns: Mapping[str, str], metrics: Sequence[str]) -> Values:
    """Of columns that are not asked for, those whose name tells that they are metrics."""
    values: dict[str, Values] = {}
    of_mlflow = any(name.startswith("metrics.") for name in columns)
    for plain, column in columns.items():
        name = column.removeprefix("metrics.")
        if plain not in (*ROW, *SEED, *STATE, *RUN) and (name != column or not of_mlflow):
            numbers = [(index, _number(line.get(column))) for index, line in enumerate(lines)]
            values[name] = [(index, name, one) for index, one in numbers if one is not None]
    numeric = [name for name in values if values[name]]
    wanted = metrics or [name for name in numeric if of_mlflow or direction_of(name) is not None]
    if not wanted:
        raise UsageError(
            f"which column is the metric? --metric NAME; of numbers are "
            f"{first_few(numeric, 12) or 'none'}; {NEEDED}"
        )
    for name in wanted:
        if name not in numeric:
            raise UsageError(unknown_name("metric", name, numeric))
    return [value for name in wanted for value in values[name]]
