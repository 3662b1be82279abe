"""Read the scores in lines of other programs: tables of scores or of runs, exports of dashboards.

Notes count, by row, the lines that are left out, merged or interpreted. Lines that could change a
verdict are refused.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from numbers import Number as AnyNumber
from typing import Any

from ablate.errors import UsageError, listed, unknown_name
from ablate.formatting import first_few, plural
from ablate.judging.scores import Number, direction_of
from ablate.stats.metrics import LARGEST_SCORE

NEEDED = (
    "needed are the columns row, seed, metric and value, or row, seed and a column for each metric"
)
# Plain names of columns (see `_plain`); the first one in the table counts.
ROW = ("ablate.row", "row", "group", "runname", "run name", "name")
SEED = ("ablate.seed", "seed", "random_seed")
STATE = ("ablate.outcome", "state", "status")
RUN = ("run", "run_id")
# Columns that identify the run of a line.
RUN_NAMES = (*RUN, "trial_id", "id", "name", "runname", "run name")
# Steps of a training, without the prefix of an exporter, as in `trainer/global_step`.
STEP = (
    "step", "global_step", "global step", "iteration", "training_iteration", "iter", "env_step",
    "epoch",
)  # fmt: skip
# Numbers that grow during a training; in a table of runs they may be settings.
GROWING = (
    *STEP, "steps", "iterations", "iters", "num_steps", "env_steps", "num_env_steps", "epochs",
    "tokens", "samples", "examples",
)  # fmt: skip
# What a score was measured on or with: scores of different values cannot be compared.
MEASURED = (
    "signature", "split", "eval_split", "test_set", "testset", "eval_set", "benchmark", "dataset",
    "task", "lang", "language", "lang_pair", "direction",
)  # fmt: skip
# States of W&B, MLflow, ablate, Optuna, Ray Tune, Slurm and of clouds.
DIVERGED = "diverged"
USUAL = ("finished", "done")
FINISHED = (
    *USUAL, "complete", "completed", "success", "successful", "succeeded", "terminated", "ok",
)  # fmt: skip
UNFINISHED = {
    "aborted", "boot_fail", "canceled", "cancelled", "crashed", "created", "deadline", "error",
    "fail", "failed", "failure", "interrupted", "killed", "node_fail", "out_of_memory", "paused",
    "pending", "preempted", "preempting", "pruned", "queued", "running", "scheduled", "starting",
    "stopped", "stopping", "submitted", "suspended", "timeout", "waiting",
}  # fmt: skip
_PREFIX = re.compile(r"^(params\.|tags\.(mlflow\.)?|config[./])")
_SEED = re.compile(r"[\s._/-]*seed[\s._=/-]*(\d+)", re.I)  # in the name of a run
_INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML
LONGEST_NAME = 1000  # characters
_STARTS_WITH_DIGIT = re.compile(r"[-+]?\d")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_CONSTANTS = ("true", "false", "none", "null")
_MOST_DIGITS = 18  # seeds with more digits are treated as names


class Line(dict[str, Any]):
    """The values of a line by column.

    Attributes:
        place: its position in the file, for messages.
        replaced: number of earlier values at the same step.
        row: name of its row; empty until it is known, and for a line without a row.
        seed: seed of its run; 0 until it is known.
    """

    def __init__(self, place: str, values: Mapping[Any, Any], replaced: int = 0) -> None:
        super().__init__(values)
        self.place = place
        self.replaced = replaced
        self.row = ""
        self.seed = 0


def read_numbers(
    lines: Sequence[Mapping[Any, Any]], metrics: Sequence[str] = (), row_columns: Sequence[str] = ()
) -> tuple[list[Number], list[str]]:
    """Read the scores in lines.

    Args:
        lines: a line for each score, with its metric and value, or a line for each run.
        metrics: the metrics to read, the metric of the verdicts first; empty if there is only one.
        row_columns: the columns whose values name a row; empty for the first of ROW.

    Returns:
        The scores, and notes on lines that were left out, merged or interpreted.

    Raises:
        UsageError: a column is missing or ambiguous, a value of a metric is no number, or the run
            of a line is unknown.
    """
    table = _Table(lines)
    table.name_rows(row_columns)
    table.leave_out_unfinished()
    table.check_rows()
    table.number_seeds(metrics)
    scores = table.scores(metrics)
    if len(scores) > 1 and not metrics:
        raise UsageError(
            "which metric is the verdict by? --metric NAME (metrics=[NAME] in Python), and again "
            f"for others to show; there are {first_few(list(scores), 12)}"
        )
    names = list(dict.fromkeys(metrics or scores))
    for name in names:
        if name not in scores:
            raise UsageError(unknown_name("metric", name, scores))
        _check_name("metric", name)
    asked = {name: scores[name] for name in names}
    table.check_steps(asked)
    table.check_measured(asked)
    diverged = _diverged_runs(scores)
    numbers: list[Number] = []
    for name in names:
        numbers += table.complete(name, scores[name], diverged, is_judged=name == names[0])
    _refuse_half_diverged(numbers)
    return numbers, table.notes


Scores = dict[int, Number]  # by the index of the line


class _Table:
    """Lines with plain names of columns.

    Attributes:
        columns: the name of each column as written, by its plain name.
        notes: on lines that were left out, merged or interpreted.
        lines: the lines with a finished run.
        row_columns: plain names of the columns that name a row.
    """

    def __init__(self, lines: Sequence[Mapping[Any, Any]]) -> None:
        self.columns: dict[str, str] = {}
        self.notes: list[str] = []
        self.lines: list[Line] = []
        self.row_columns: Sequence[str] = ()
        self._clashes: dict[str, str] = {}
        for count, line in enumerate(lines, 1):
            copy = Line(f"line {count}", {})
            if isinstance(line, Line):
                copy = Line(line.place, {}, line.replaced)
            for name, value in line.items():
                self._add(copy, str(name), value)
            self.lines.append(copy)

    def _add(self, line: Line, name: str, value: Any) -> None:
        """Add a value to a line.

        If two columns have the same plain name, such as `seed` and `config.seed`, the first value
        counts. A different second value is a fault, unless the column is not read.
        """
        plain = _plain(name)
        first_name = self.columns.setdefault(plain, name)
        first_text = _text(line, plain)
        if first_text and first_name != name:
            text = _text({plain: value}, plain)
            if text and _spelling(text) != _spelling(first_text):
                self._clashes.setdefault(
                    plain,
                    f'{line.place}: the columns "{first_name}" and "{name}" have '
                    f'"{first_text[:60]}" and "{text[:60]}", and one of them is needed; leave the '
                    f"other out",
                )
            return
        line[plain] = value

    def _use(self, plain: str) -> str:
        """Return the name of a column that is read; refuse two columns with different values."""
        if plain in self._clashes:
            raise UsageError(self._clashes[plain])
        return plain

    def _first_filled(self, names: Sequence[str]) -> str:
        """The first of these columns that has a value; the first name if none has."""
        for name in names:
            if name in self.columns and any(_text(line, name) for line in self.lines):
                return self._use(name)
        return names[0]

    def name_rows(self, row_columns: Sequence[str]) -> None:
        """Find the columns that name a row, and name the row of each line."""
        for name in row_columns:
            if _plain(name) not in self.columns:
                raise UsageError(unknown_name("column", name, self.columns))
        self.row_columns = [self._use(_plain(name)) for name in row_columns]
        if not row_columns:
            self.row_columns = [self._first_filled(ROW)]
        if not any(_text(line, name) for line in self.lines for name in self.row_columns):
            raise UsageError(
                f"no column says the row ({', '.join(ROW)}, or --by COLUMN, by=[COLUMN] in "
                f"Python); {NEEDED}"
            )
        if row_columns:
            self._merge_spellings()
        for line in self.lines:
            values = [_text(line, name) for name in self.row_columns]
            if len(values) > 1 and "" not in values:
                settings = zip(self.row_columns, values, strict=True)
                values = [" ".join(f"{name}={value}" for name, value in settings)]
            line.row = values[0] if len(values) == 1 else ""

    def _merge_spellings(self) -> None:
        """Give equal numbers the spelling of the first one, so that `3e-4` and `0.0003` are
        equal.
        """
        for name in self.row_columns:
            first_spelling: dict[str | float, str] = {}
            replaced = Counter[tuple[str, str]]()
            for line in self.lines:
                text = _text(line, name)
                line[name] = first_spelling.setdefault(_spelling(text), text)
                if line[name] != text:
                    replaced[text, line[name]] += 1
            for (text, first), count in replaced.items():
                self.notes.append(
                    f"{self.columns[name]}: {text} is read as {first} in {plural(count, 'line')}."
                )

    def leave_out_unfinished(self) -> None:
        """Leave out the lines of unfinished runs, with a note, and mark the lines of diverged
        runs.
        """
        column = self._first_filled(STATE)
        if not any(_text(line, column) for line in self.lines):
            return
        unfinished = Counter[tuple[str, str]]()  # (row, state)
        unusual_states: dict[str, None] = {}
        finished: list[Line] = []
        for line in self.lines:
            texts = (_text(line, name) for name in (column, *STATE))
            text = next(filter(None, texts), "")
            word = text.lower().replace(" ", "_")
            if word in UNFINISHED or word.split("_")[0] in ("cancelled", "canceled"):
                unfinished[line.row, text] += 1
                continue
            if word not in (*FINISHED, DIVERGED):
                problem = f'the state "{text[:60]}" is not known' if text else "has no state"
                raise UsageError(
                    f"{line.place}: {problem}: runs with a score are "
                    f"{listed((*FINISHED, DIVERGED))}; leave the column "
                    f'"{self.columns.get(column, column)}" out if it is no state'
                )
            if word not in (*USUAL, DIVERGED):
                unusual_states[text] = None
            line[STATE[0]] = word
            finished.append(line)
        if unusual_states:
            states = first_few(list(unusual_states))
            self.notes.append(f"Taken for finished: the state {states}.")
        if unfinished:
            counts = []
            for (row, text), count in unfinished.items():
                counts.append(f"{row or 'without a row'} {count} ({text})")
            self.notes.append(f"Lines left out, because not finished: {'; '.join(counts)}.")
        lost_rows = dict.fromkeys(row for row, _ in unfinished if row)
        for line in finished:
            lost_rows.pop(line.row, None)
        if lost_rows:
            names = first_few(list(lost_rows))
            self.notes.append(f"Without a finished run, and not counted as a row: {names}.")
        self.lines = finished

    def check_rows(self) -> None:
        """Leave out lines without a row, with a note. Refuse names of rows that look alike or
        cannot be shown.
        """
        unnamed = [line for line in self.lines if not line.row]
        if unnamed:
            columns = " or ".join(self.columns[name] for name in self.row_columns)
            self.notes.append(
                f"WARNING: {plural(len(unnamed), 'line')} left out, because {columns} is empty "
                f"(first {unnamed[0].place}): the runs are in no row, and the correction does not "
                f"count them."
            )
        self.lines = [line for line in self.lines if line.row]
        similar: dict[object, str] = {}
        for row in dict.fromkeys(line.row for line in self.lines):
            _check_name("row", row)
            first = similar.setdefault(_appearance(row), row)
            if first != row:
                raise UsageError(
                    f"{first!a} and {row!a} are two rows, and look like one: write them alike, or "
                    f"give them names that differ"
                )

    def number_seeds(self, metrics: Sequence[str]) -> None:
        """Find the seed of each line, in a column or in the name of the row. If neither has it,
        number the runs. Seeds are removed from the names of rows.

        Args:
            metrics: the requested metrics, which are no columns of steps.
        """
        column = self._first_filled(SEED)
        texts = [_text(line, column).removesuffix(".0") for line in self.lines]
        name_seeds = [_SEED.findall(line.row) for line in self.lines]
        if any(texts):
            if "" in texts:
                raise UsageError(f"{plural(texts.count(''), 'line')} without a seed; {NEEDED}")
            # A name may have the seed of something else, such as the data; then it stays.
            pairs = zip(name_seeds, texts, strict=True)
            if all(not seeds or seeds[0] == text for seeds, text in pairs):
                self._shorten_names()
        elif all(name_seeds):
            texts = [seeds[0] for seeds in name_seeds]
            self._shorten_names()
        elif any(name_seeds):
            seeded = next(line.row for line in self.lines if _SEED.search(line.row))
            unseeded = next(line.row for line in self.lines if not _SEED.search(line.row))
            raise UsageError(f'"{seeded}" says a seed and "{unseeded}" does not; {NEEDED}')
        else:
            texts = self._numbered_runs(metrics)
        are_numbers = all(text.isdecimal() and len(text) <= _MOST_DIGITS for text in texts)
        if not are_numbers:
            _refuse_summaries(texts)
        numbers: dict[str | float, int] = {}
        for line, text in zip(self.lines, texts, strict=True):
            if are_numbers:
                line.seed = int(text)
            else:
                line.seed = numbers.setdefault(_spelling(text), len(numbers) + 1)  # 1e3 is 1000

    def _shorten_names(self) -> None:
        """Remove the seed from the names of rows."""
        for line in self.lines:
            line.row = _SEED.sub("", line.row, count=1) or line.row

    def _numbered_runs(self, metrics: Sequence[str]) -> list[str]:
        """Number the runs of each row in their order. A column with the name of the run groups
        lines.
        """
        names = [name for name in RUN_NAMES if name not in self.row_columns]
        run_column = self._first_filled(names)
        numbers = []
        runs: dict[str, dict[object, None]] = {}
        score_counts = Counter[object]()
        duplicates = Counter[str]()
        seen_lines: set[object] = set()
        for line in self.lines:
            score = (line.row, *(_text(line, name) for name in ("metric", "item", "resample")))
            score_counts[score] += 1
            row_runs = runs.setdefault(line.row, {})
            run: object = _text(line, run_column) or score_counts[score]
            row_runs.setdefault(run)
            numbers.append(str(list(row_runs).index(run) + 1))
            content = (line.row, *((name, str(value)) for name, value in line.items()))
            duplicates[line.row] += content in seen_lines
            seen_lines.add(content)
        if not any(_text(line, run_column) for line in self.lines):
            self._refuse_curves(metrics)
        counts = _counts({row: len(row_runs) for row, row_runs in runs.items()})
        self.notes.append(
            f"No column seed: the runs of each row are numbered in their order ({counts})."
        )
        if counts := _counts(duplicates):
            self.notes.append(f"Equal to an earlier line, and counted as further runs: {counts}.")
        return numbers

    def _step_columns(self, words: Sequence[str], metrics: Iterable[str]) -> list[str]:
        """The columns whose last word is one of these, in the order of the words. Columns of rows
        and of metrics are left out.
        """
        columns: dict[str, list[str]] = {}
        excluded = {*self.row_columns, *map(_plain, metrics)}
        for plain in self.columns:
            if not excluded & {plain, plain.removeprefix("metrics.")}:
                last_word = re.split(r"[/.]", plain)[-1].strip("_")
                columns.setdefault(last_word, []).append(plain)
        return [name for word in words for name in columns.get(word, [])]

    def _refuse_curves(self, metrics: Sequence[str]) -> None:
        """Refuse lines at several steps whose run is unknown."""
        columns = self._step_columns(GROWING, metrics)
        steps: dict[tuple[str, str], set[tuple[str, ...]]] = {}
        for line in self.lines:
            step = tuple(_text(line, name) for name in columns)
            steps.setdefault((line.row, _text(line, "metric")), set()).add(step)
        for (row, _), row_steps in steps.items():
            if len(row_steps) > 1:
                raise UsageError(
                    f"{row} has lines at {len(row_steps)} steps, and no column says the seed or "
                    f"the run: evaluations of one training are not several seeds; give the last "
                    f"line of each run, with its seed"
                )

    def check_steps(self, metric_scores: Mapping[str, Scores]) -> None:
        """Note scores of different steps, or refuse them if no state says that the runs have
        ended.
        """
        replaced = Counter[str]()
        for line in self.lines:
            replaced[line.row] += line.replaced
        if counts := _counts(replaced):
            self.notes.append(f"Values replaced by later ones at the same step: {counts}.")
        column = self._first_filled([*self._step_columns(STEP, metric_scores), STEP[0]])
        for scores in metric_scores.values():
            row_steps: dict[str, dict[str, None]] = {}
            for index, number in scores.items():
                step = _text(self.lines[index], column).removesuffix(".0") or "none"
                row_steps.setdefault(number.row, {})[step] = None
            if len(set(itertools.chain.from_iterable(row_steps.values()))) < 2:
                continue
            texts = [f"{row} {first_few(list(steps))}" for row, steps in row_steps.items()]
            problem = f"scores of different steps: {first_few(texts)}"
            if all(STATE[0] in line for line in self.lines):
                self.notes.append(f"{problem.capitalize()}.")
                return
            raise UsageError(
                f"{problem}; give scores of one step, or if each run had ended there, a table "
                f'without the column "{self.columns.get(column, column)}"'
            )

    def check_measured(self, metric_scores: Mapping[str, Scores]) -> None:
        """Refuse scores of a metric that were measured on different text or in different ways."""
        for column in MEASURED:
            if column not in self.columns or column in self.row_columns:
                continue
            for metric, scores in metric_scores.items():
                first_row: dict[str, str] = {}  # by value
                for index, number in scores.items():
                    text = _text(self.lines[index], column) or "none"
                    first_row.setdefault(text, number.row)
                if len(first_row) > 1:
                    texts = [f"{row} {text[:60]}" for text, row in first_row.items()]
                    raise UsageError(
                        f'{metric} has scores of different "{self.columns[self._use(column)]}": '
                        f"{first_few(texts)}; give the scores of one, or if they are settings of "
                        "the rows, leave the column out"
                    )

    def scores(self, metrics: Sequence[str]) -> dict[str, Scores]:
        """The scores by metric, without empty cells. Scores of diverged runs are not finite."""
        cells = self._metric_cells(metrics)
        if {"metric", "value"} <= self.columns.keys():
            cells = self._value_cells()
        scores: dict[str, Scores] = {}
        seen: set[object] = set()
        for index, metric, cell in cells:
            line = self.lines[index]
            value = _value(cell, line, metric)
            if value is None:
                scores.setdefault(metric, {})
                continue
            item = _text(line, "item")
            resample = _text(line, "resample").removesuffix(".0")
            if not (resample or "0").isdecimal() or len(resample) > _MOST_DIGITS:
                raise UsageError(f'resample "{resample[:60]}" is not allowed: must be a number')
            run = self._run_id(line)
            number = Number(line.row, line.seed, metric, value, item, resample, run)
            key = (line.row, line.seed, metric, item, resample)
            if key in seen:
                raise UsageError(
                    f"{line.place}: {line.row}, seed {line.seed}: {metric} has two values; a run "
                    f"has one, or one for each item"
                )
            seen.add(key)
            scores.setdefault(metric, {})[index] = number
        return scores

    def _run_id(self, line: Line) -> str:
        """The id of the training of a line. A number counts the runs of each row, and is no id that
        rows share.
        """
        text = _text(line, self._first_filled(RUN)).removesuffix(".0")
        return "" if text.isdecimal() else text

    def _value_cells(self) -> Iterator[tuple[int, str, Any]]:
        """Yield (index of the line, metric, cell) of lines with one score each."""
        self._use("metric")
        self._use("value")
        for index, line in enumerate(self.lines):
            yield index, _text(line, "metric"), line.get("value")

    def _metric_cells(self, metrics: Sequence[str]) -> Iterator[tuple[int, str, Any]]:
        """Yield (index of the line, metric, cell) of the columns of metrics. Without requested
        metrics, these are the columns whose names are known as names of metrics.
        """
        is_mlflow = any(name.startswith("metrics.") for name in self.columns)
        numeric: dict[str, str] = {}  # metric -> column
        wanted = dict.fromkeys(metrics)
        excluded = {*ROW, *SEED, *STATE, *RUN, *self.row_columns}
        for plain in self.columns:
            name = plain.removeprefix("metrics.")
            if plain in excluded or (is_mlflow and name == plain):
                continue
            if any(_number(line.get(plain)) is not None for line in self.lines):
                numeric[name] = plain
                if not metrics and (is_mlflow or direction_of(name) is not None):
                    wanted[name] = None
            # Cells such as 27,1 or 27.1 % are refused when their value is read.
            elif not metrics and direction_of(name) is not None and self._has_digits(plain):
                wanted[name] = None
        if not wanted:
            raise UsageError(
                "which column is the metric? --metric NAME (metrics=[NAME] in Python); of numbers "
                f"are {first_few(list(numeric), 12) or 'none'}; {NEEDED}"
            )
        for name in wanted:
            plain = numeric.get(name) or numeric.get(_plain(name)) or _plain(name)
            if plain not in self.columns:
                raise UsageError(unknown_name("metric", name, numeric))
            self._use(plain)
            for index, line in enumerate(self.lines):
                yield index, name, line.get(plain)

    def _has_digits(self, column: str) -> bool:
        return any(_STARTS_WITH_DIGIT.match(_text(line, column)) for line in self.lines)

    def complete(
        self, metric: str, scores: Scores, diverged: Collection[tuple[str, int]], is_judged: bool
    ) -> list[Number]:
        """The scores of a metric. Runs without this metric that diverged by another metric get NaN.

        Args:
            metric: the metric.
            scores: its scores, by line.
            diverged: (row, seed) of the diverged runs.
            is_judged: whether it is the metric of the verdicts. Then a run without it is refused.
        """
        scored_runs = {(number.row, number.seed) for number in scores.values()}
        missing = Counter[str]()
        numbers = dict(scores)
        for index, line in enumerate(self.lines):
            key = (line.row, line.seed)
            if key in scored_runs:
                continue
            scored_runs.add(key)
            if key in diverged:
                numbers[index] = Number(*key, metric, math.nan, run=self._run_id(line))
                continue
            missing[line.row] += 1
            if is_judged:
                raise UsageError(
                    f"{line.place}: {line.row}, seed {line.seed}, has no {metric}; write nan if "
                    f"the run diverged, or leave its lines out"
                )
        if missing:
            self.notes.append(f"Runs without {metric}: {_counts(missing)}.")
        return [numbers[index] for index in sorted(numbers)]


def _counts(counts: Mapping[str, int]) -> str:
    """`base 2, wide 1`; names with the count 0 are left out."""
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def _diverged_runs(metric_scores: Mapping[str, Scores]) -> set[tuple[str, int]]:
    """(row, seed) of the runs with a score that is not finite."""
    runs = set()
    for scores in metric_scores.values():
        for number in scores.values():
            if not math.isfinite(number.value):
                runs.add((number.row, number.seed))
    return runs


def _refuse_half_diverged(numbers: Iterable[Number]) -> None:
    """Refuse runs that have diverged in one metric and not in another."""
    first: dict[tuple[str, int, bool], Number] = {}
    for number in numbers:
        first.setdefault((number.row, number.seed, math.isfinite(number.value)), number)
    for (row, seed, is_finite), number in first.items():
        finite = first.get((row, seed, True))
        if not is_finite and finite is not None and finite.metric != number.metric:
            raise UsageError(
                f"{row}, seed {seed}: {number.metric} is {number.value}, and {finite.metric} "
                f"{finite.value:g}; write nan for both if the run diverged, or leave the value "
                f"that is no number out"
            )


def _refuse_summaries(seeds: Iterable[str]) -> None:
    """Refuse a seed without a digit, such as `mean` or `std`, where others have one."""
    words = {seed: any(map(str.isdecimal, seed)) for seed in seeds}
    if len(set(words.values())) > 1:
        word = next(seed for seed, has_digit in words.items() if not has_digit)
        raise UsageError(
            f'the seed "{word[:60]}" is no number, and others are: lines with a mean or a spread '
            "are no runs; leave them out"
        )


def _check_name(kind: str, name: str) -> None:
    """Refuse names that cannot be printed."""
    if len(name) > LONGEST_NAME:
        raise UsageError(
            f'a {kind} has a name of {len(name):,} characters, "{name[:30]}…": at most '
            f"{LONGEST_NAME:,} are allowed"
        )
    if invalid := _INVALID.search(name):
        raise UsageError(
            f"the {kind} {name!a} has the character {invalid[0]!a}, which is no text; remove it"
        )


@cache
def _plain(name: str) -> str:
    """The name of a column in lower case, without the prefix of an exporter."""
    return _PREFIX.sub("", name.strip().lower())


def _text(line: Mapping[str, Any], column: str) -> str:
    """The text of a cell; empty for a missing cell, and for the missing values of pandas."""
    value = line.get(column)
    if value is None or str(value) in ("<NA>", "NaT") or (_is_nan(value)):
        return ""
    return str(value).strip()


def _is_nan(value: Any) -> bool:
    # Also for numbers of numpy and decimal. NA of pandas is no number.
    return isinstance(value, AnyNumber) and value != value


def _spelling(text: str) -> str | float:
    """The finite number that a text spells, or the text: `3e-4` equals `0.0003`."""
    value = _number(text)
    return text if value is None or not math.isfinite(value) else value


def _appearance(row: str) -> object:
    """A key that is equal for names that look alike: spellings of a number, `true` and `True`,
    blanks, invisible characters, and forms of a letter.
    """
    characters = unicodedata.normalize("NFKC", row)
    # U+FE0E and U+FE0F choose the picture of an emoji.
    visible = [c for c in characters if unicodedata.category(c) != "Cf" and c not in "\ufe0e\ufe0f"]
    text = " ".join("".join(visible).split())
    # Python, JSON and YAML write these words in different cases.
    return text.lower() if text.lower() in _CONSTANTS else _spelling(text)


def _number(value: Any) -> float | None:
    """The number in a cell: NaN for the word of a diverged run, None for other text."""
    if isinstance(value, str) and value.strip().lower() == DIVERGED:
        return math.nan
    if isinstance(value, str) and "_" in value:  # float() accepts 1_000
        return None
    if type(value).__name__ in ("bool", "bool_"):  # float() accepts True
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def _value(cell: Any, line: Line, metric: str) -> float | None:
    """The value of a metric; None for an empty cell, NaN for a diverged run.

    A NaN of pandas is refused, because it may mean a diverged run or a missing value. The text
    `nan` in a file means a diverged run.
    """
    if line.get(STATE[0]) == DIVERGED:
        return math.nan
    if _is_nan(cell):
        raise UsageError(
            f"{line.place} has no {metric}, but NaN; leave the line out, or write inf for a "
            "run that diverged"
        )
    value = _number(cell)
    text = _text({"": cell}, "")
    if value is None and text:
        remedy = "write nan for a run that diverged"
        if _DECIMAL_COMMA.fullmatch(text):
            remedy = "write a point in the place of a decimal comma"
        raise UsageError(f'{line.place}: {metric} "{text[:60]}" is no number; {remedy}')
    # The same limits as in results. float() reads 1e400 as infinity.
    overflows = value is not None and math.isinf(value) and re.search(r"\d", text)
    if value is not None and (LARGEST_SCORE < abs(value) < math.inf or overflows):
        if len(text) > 12:
            text = f"{text[:12]}…"
        raise UsageError(
            f"{line.place}: {metric} {text} is not allowed: must be between -1e100 and 1e100"
        )
    return value
