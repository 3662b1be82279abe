"""Read scores from tables that other programs wrote. A line has one score, or all scores of a run.

The notes say, for each row, how many lines were left out, merged or interpreted. Lines that would
make a verdict doubtful are refused.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ablate.errors import Fault, UsageError, not_allowed, unknown_name
from ablate.formatting import first_few
from ablate.judging.columns import (
    DIVERGED,
    EXPECTED_COLUMNS,
    GROWING,
    NOT_METRICS,
    RUN,
    STEP,
    Line,
    SourceTable,
    cell_text,
    check_name,
    is_nan,
    metric_name,
    parse_number,
    plain_name,
)
from ablate.judging.names import with_named_seeds
from ablate.judging.rows import (
    MOST_DIGITS,
    counts_text,
    finished_lines,
    lines_with_rows,
    lines_with_seeds,
    merged_spellings,
    named_lines,
    pairing_columns,
)
from ablate.judging.scores import RunMeasurement, direction_of
from ablate.judging.wide import refuse_wide
from ablate.stats.metrics import LARGEST_SCORE

# Names of columns that tell on which text, or how, a score was measured. Scores with different
# values in such a column cannot be compared.
MEASURED = (
    "signature", "split", "eval_split", "test_set", "testset", "eval_set", "benchmark", "dataset",
    "task", "lang", "language", "lang_pair", "direction",
)  # fmt: skip
# Names of columns that tell which checkpoint of a run was scored, and words for its choice. Paths
# and numbers of checkpoints differ between runs, and are not compared.
CHECKPOINT = ("checkpoint", "ckpt", "weights")
CHECKPOINT_WORDS = {"best", "last", "final", "latest", "average", "averaged", "avg", "ema", "swa"}
_STARTS_WITH_DIGIT = re.compile(r"[-+]?\d")
_GROUPED = re.compile(r"[-+]?\d{1,3}(,\d{3})+")  # or a decimal comma, as in 1,234
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")


def read_measurements(
    lines: Iterable[Line],
    metrics: Sequence[str] = (),
    row_columns: Sequence[str] = (),
    *,
    base: str | None = None,
    has_numbered_rows: bool = False,
) -> tuple[list[RunMeasurement], SourceTable]:
    """Read the scores in lines.

    Args:
        lines: a line for each score, with columns for its metric and value, or a line for each run,
            with a column for each metric.
        metrics: the metrics to read, first the metric of the verdicts; empty if there is only one.
        row_columns: the columns whose values name a row; empty for the first column of ROW that has
            a value.
        base: requested label of base; None for the only label in BASES.
        has_numbered_rows: whether a number at the end of a name always is a part of the name.

    Returns:
        The scores, and their table, with its notes.

    Raises:
        UsageError: a column is missing or ambiguous, a value of a metric is not a number, or the
            run of a line is unknown.
    """
    lines = list(lines)
    refuse_wide(lines, metrics, row_columns)
    metrics = list(map(metric_name, metrics))
    source = SourceTable(lines, row_columns)
    merged = merged_spellings(source.lines, source) if row_columns else source.lines
    named = named_lines(merged, source)
    if not has_numbered_rows:
        named = with_named_seeds(named, source, base)
    finished = finished_lines(named, source)
    with_rows = lines_with_rows(finished, source)
    table = _RunTable(source, lines_with_seeds(with_rows, source, metrics))
    scores = table.scores(metrics)
    if len(scores) > 1 and not metrics:
        remedy = (
            "name the metric of the verdicts with --metric NAME (metrics=[NAME] in Python), and "
            "repeat --metric for metrics that are only shown; found "
            f"{first_few(list(scores), 12)}"
        )
        raise UsageError(Fault("several metrics", remedy=remedy, choices=tuple(scores)))
    names = list(dict.fromkeys(metrics or scores))
    for name in names:
        if name not in scores:
            raise UsageError(unknown_name("metric", name, scores))
        check_name("metric", name)
    asked = {name: scores[name] for name in names}
    table.note_replaced_values()
    table.check_steps(asked)
    table.check_measured(asked)
    diverged = _diverged_runs(chain.from_iterable(scores.values()))
    measurements: list[RunMeasurement] = []
    for name, metric_scores in asked.items():
        completed = table.completed(name, metric_scores, diverged)
        table.check_missing(name, completed, is_judged=name == names[0])
        measurements += [score.measurement for score in completed]
    _refuse_half_diverged(measurements)
    return measurements, source


class _Score(NamedTuple):
    """A measurement, and the line that has it."""

    line: Line
    measurement: RunMeasurement


class _RunTable:
    """Lines whose rows, states and seeds are known."""

    def __init__(self, source: SourceTable, lines: Sequence[Line]) -> None:
        self.source = source
        self._notes = source.notes
        self.lines = lines
        self._run_column = source.first_filled(lines, RUN)
        self._trainings = self._training_ids()

    def _training_ids(self) -> set[str]:
        """The values of the column of runs that identify a training. Plain numbers count the runs
        of a row; a value with several seeds is the name of something else, such as a sweep.
        """
        runs_by_id: dict[str, dict[tuple[str, int], None]] = {}
        for line in self.lines:
            id = line.integer_text(self._run_column)
            if id and not id.isdecimal():
                runs_by_id.setdefault(id, {})[line.run] = None
        trainings = set[str]()
        sharing: dict[str, None] = {}  # rows that share a training
        for id, runs in runs_by_id.items():
            rows = dict.fromkeys(row for row, _ in runs)
            if len({seed for _, seed in runs}) == 1:
                trainings.add(id)
                if len(rows) > 1:
                    sharing |= rows
            elif len(rows) > 1:
                self._notes.append(f"Not the id of a training, as it has several seeds: {id[:60]}.")
        if sharing:
            column = self.source.columns[self._run_column or ""]
            self._notes.append(
                f'Rows that share trainings, by the column "{column}": {first_few(list(sharing))}.'
            )
        return trainings

    def scores(self, metrics: Sequence[str]) -> dict[str, list[_Score]]:
        """The scores by metric. Empty cells are skipped. Scores of diverged runs are not finite.

        Raises:
            UsageError: a score is not a number, or a run has two values of one metric.
        """
        scores: dict[str, list[_Score]] = {}
        seen: dict[object, Line] = {}
        for line, metric, cell in self._cells(metrics):
            # A metric without any score is kept: `check_missing` then reports its runs.
            metric_scores = scores.setdefault(metric, [])
            value = _parse_score(cell, line, metric)
            if value is None:
                continue
            item = line.text("item")
            resample = line.integer_text("resample")
            if not (resample or "0").isdecimal() or len(resample) > MOST_DIGITS:
                fault = not_allowed(f'"{resample[:60]}"', "a number")
                raise UsageError(line.located(fault.about("resample")))
            key = (line.run, metric, item, resample)
            if key in seen:
                fault = self._two_values(seen[key], line, metric, metrics)
                raise UsageError(line.located(fault.about(f"{line.row}, seed {line.seed}")))
            seen[key] = line
            metric_scores.append(self._score(line, metric, value, item, resample))
        return scores

    def _two_values(self, first: Line, second: Line, metric: str, metrics: Sequence[str]) -> Fault:
        """The fault of two lines with a value of the same metric for the same run."""
        if first.cells == second.cells:
            return Fault("the line is there twice", remedy="remove one of the two")
        for column in self.source.step_columns(GROWING, (*metrics, metric)):
            if first.text(column) != second.text(column):
                key = (second.run, second.text("metric"))
                lines = [line for line in self.lines if (line.run, line.text("metric")) == key]
                n_steps = len({line.text(column) for line in lines})
                problem = (
                    f'lines at {n_steps} steps, by the column "{self.source.columns[column]}": '
                    "evaluations of one training are not several runs"
                )
                return Fault(problem, remedy="keep only the last line of each run")
        remedy = "a run has one value, or one for each item"
        return Fault(f"{metric} has two values", remedy=remedy)

    def _score(
        self, line: Line, metric: str, value: float, item: str = "", resample: str = ""
    ) -> _Score:
        id = line.integer_text(self._run_column)
        model = id if id in self._trainings else ""
        measurement = RunMeasurement(line.row, line.seed, metric, value, item, resample, model)
        return _Score(line, measurement)

    def _cells(self, metrics: Sequence[str]) -> Iterator[tuple[Line, str, Any]]:
        """Yield (line, metric, cell) for each score: from the column `value`, or for each column of
        a metric.
        """
        if {"metric", "value"} <= self.source.columns.keys():
            self.source.check_unambiguous("metric")
            self.source.check_unambiguous("value")
            for line in self.lines:
                yield line, metric_name(line.text("metric")), line.cells.get("value")
            return
        for metric, column in self._metric_columns(metrics).items():
            self.source.check_unambiguous(column)
            for line in self.lines:
                yield line, metric, line.cells.get(column)

    def _metric_columns(self, metrics: Sequence[str]) -> dict[str, str]:
        """The column of each metric. If `metrics` is empty, every column is taken as a metric if
        its name tells whether higher is better; in a table of MLflow, every numeric column of
        `metrics.`.
        """
        is_mlflow = any(name.startswith("metrics.") for name in self.source.columns)
        numeric: dict[str, str] = {}  # metric -> column
        recognized: dict[str, str] = {}
        excluded = {*NOT_METRICS, *self.source.row_columns}
        for column in self.source.columns:
            name = metric_name(column)
            if column in excluded or (is_mlflow and name == column):
                continue
            has_direction = direction_of(name) is not None
            if any(parse_number(line.cells.get(column)) is not None for line in self.lines):
                numeric[name] = column
                if is_mlflow or has_direction:
                    recognized[name] = column
            # Cells such as 27,1 or 27.1 % are refused by `_parse_score`.
            elif has_direction and self._has_digits(column):
                recognized[name] = column
        wanted = {} if metrics else recognized
        for metric in metrics:
            # Prefer a numeric column with this name; then with its plain name; then any column.
            plain = plain_name(metric)
            column = numeric.get(metric) or numeric.get(plain, plain)
            if column not in self.source.columns:
                column = f"metrics.{plain}"
            if column not in self.source.columns:
                raise UsageError(unknown_name("metric", metric, numeric))
            wanted[metric] = column
        if not wanted:
            remedy = (
                "give --metric NAME (metrics=[NAME] in Python), and --higher-is-better NAME or "
                "--lower-is-better NAME if the name does not tell; numeric columns: "
                f"{first_few(list(numeric), 12) or 'none'}; {EXPECTED_COLUMNS}"
            )
            problem = "which column is the metric?"
            raise UsageError(Fault(problem, remedy=remedy, choices=tuple(numeric)))
        return wanted

    def _has_digits(self, column: str) -> bool:
        return any(_STARTS_WITH_DIGIT.match(line.text(column)) for line in self.lines)

    def note_replaced_values(self) -> None:
        """Note the number of values that later values at the same step replace, by row."""
        replaced = Counter[str]()
        for line in self.lines:
            if line.n_replaced:
                replaced[line.row] += line.n_replaced
        if replaced:
            counts = counts_text(replaced)
            self._notes.append(f"Values replaced by later values at the same step: {counts}.")

    def check_steps(self, metric_scores: Mapping[str, Sequence[_Score]]) -> None:
        """Refuse scores of different steps. A note is enough if every line has a state: such a
        table has a line for each run, with its final step. Likewise for columns that may be a
        setting of the rows.
        """
        step_columns = self.source.step_columns(STEP, metric_scores)
        column = self.source.first_filled(self.lines, step_columns)
        if column is not None:
            for rows in self._different_steps(column, metric_scores):
                if not all(line.state for line in self.lines):
                    remedy = (
                        "keep the scores of one step, or, if these are the last steps of the runs, "
                        f'remove the column "{self.source.columns[column]}"'
                    )
                    raise UsageError(Fault(f"scores of different steps: {rows}", remedy=remedy))
                self._notes.append(f"Scores of different steps: {rows}.")
        for column in self.source.step_columns(GROWING, (*metric_scores, *step_columns)):
            for rows in self._different_steps(column, metric_scores):
                self._notes.append(f"Scores of different {self.source.columns[column]}: {rows}.")

    def _different_steps(
        self, column: str, metric_scores: Mapping[str, Sequence[_Score]]
    ) -> list[str]:
        """The steps of each row in a column, such as `base 100, wide 200`, for each metric with
        scores of several steps. Equal texts are given once.
        """
        texts: dict[str, None] = {}
        for scores in metric_scores.values():
            row_steps: dict[str, dict[str, None]] = {}
            for line, _ in scores:
                step = line.integer_text(column) or "none"
                row_steps.setdefault(line.row, {})[step] = None
            if len(set(chain.from_iterable(row_steps.values()))) > 1:
                rows = [f"{row} {first_few(list(steps))}" for row, steps in row_steps.items()]
                texts[first_few(rows)] = None
        return list(texts)

    def check_measured(self, metric_scores: Mapping[str, Sequence[_Score]]) -> None:
        """Refuse scores of a metric that were measured on different text, in different ways, or on
        differently chosen checkpoints.
        """
        pairing = pairing_columns(self.lines, self.source, list(metric_scores))
        for column in (*MEASURED, *CHECKPOINT):
            if column not in self.source.columns or column in self.source.row_columns:
                continue
            for metric, scores in metric_scores.items():
                first: dict[str, str] = {}  # what is compared -> the first row with it, as written
                for line, measurement in scores:
                    if not math.isfinite(measurement.value):  # a diverged run was not measured
                        continue
                    compared = text = line.text(column)
                    if column in CHECKPOINT:
                        words = set(re.findall("[a-z]+", text.lower()))
                        compared = " ".join(sorted(words & CHECKPOINT_WORDS))
                    first.setdefault(compared, f"{line.row} {text[:60] or 'none'}")
                if len(first) > 1:
                    self.source.check_unambiguous(column)
                    values = first_few(list(first.values()))
                    problem = (
                        f"{metric} has scores with different values of "
                        f'"{self.source.columns[column]}": {values}'
                    )
                    remedy = (
                        "keep the scores of one value, or, if the values are settings of the rows, "
                        "remove the column"
                    )
                    if not self.source.is_paired and column in map(plain_name, pairing):
                        remedy += ", or, if runs with the same value belong together, rename it to "
                        remedy += "seed"
                    raise UsageError(Fault(problem, remedy=remedy))

    def completed(
        self, metric: str, scores: Sequence[_Score], diverged: Collection[tuple[str, int]]
    ) -> list[_Score]:
        """The scores of a metric, and NaN for each run without a score in it that diverged in
        another metric, in the order of the lines.
        """
        completed = list(scores)
        for line in self._lines_without(scores):
            if line.run in diverged:
                completed.append(self._score(line, metric, math.nan))
        return sorted(completed, key=lambda score: score.line.number)

    def check_missing(self, metric: str, scores: Sequence[_Score], is_judged: bool) -> None:
        """Refuse a run without a score if the verdicts use the metric; else count such runs."""
        missing = self._lines_without(scores)
        if missing and is_judged:
            line = missing[0]
            problem = f"{line.row}, seed {line.seed}, has no {metric}"
            remedy = "write inf if the run diverged, or remove the lines of the run"
            raise UsageError(line.located(Fault(problem, remedy=remedy)))
        if missing:
            counts = counts_text(Counter(line.row for line in missing))
            self._notes.append(f"Runs without {metric}: {counts}.")

    def _lines_without(self, scores: Sequence[_Score]) -> list[Line]:
        """The first line of each run that has none of these scores."""
        scored = {score.line.run for score in scores}
        first_lines: dict[tuple[str, int], Line] = {}
        for line in self.lines:
            if line.run not in scored:
                first_lines.setdefault(line.run, line)
        return list(first_lines.values())


def _diverged_runs(scores: Iterable[_Score]) -> set[tuple[str, int]]:
    """The runs with a score that is not finite."""
    return {line.run for line, score in scores if not math.isfinite(score.value)}


def _refuse_half_diverged(measurements: Iterable[RunMeasurement]) -> None:
    """Refuse runs that have diverged in one metric and not in another."""
    first_finite: dict[tuple[str, int], RunMeasurement] = {}
    first_not_finite: dict[tuple[str, int], RunMeasurement] = {}
    for measurement in measurements:
        first = first_finite if math.isfinite(measurement.value) else first_not_finite
        first.setdefault((measurement.row, measurement.seed), measurement)
    for (row, seed), diverged in first_not_finite.items():
        finite = first_finite.get((row, seed))
        if finite is not None and finite.metric != diverged.metric:
            problem = f"{diverged.metric} is {diverged.value}, and {finite.metric} {finite.value:g}"
            remedy = f"write inf for both if the run diverged; else remove the {diverged.value}"
            raise UsageError(Fault(problem, subject=f"{row}, seed {seed}", remedy=remedy))


def _parse_score(cell: Any, line: Line, metric: str) -> float | None:
    """The score in a cell: None for an empty cell, and not finite for a diverged run.

    The text `nan` means a diverged run. The number NaN of a data frame is refused, because pandas
    also writes it for a missing value.
    """
    if line.state == DIVERGED:
        return math.nan
    if is_nan(cell):
        problem = f"{metric} is NaN, which may mean a missing value or a diverged run"
        remedy = "remove the line, or write inf if the run diverged"
        raise UsageError(line.located(Fault(problem, remedy=remedy)))
    value = parse_number(cell)
    text = cell_text(cell)
    if value is None and text:
        remedy = "write inf if the run diverged"
        if text.lower() in ("true", "false"):
            remedy = "write 1 for true and 0 for false"
        elif text.endswith("%"):
            remedy = "write the number without %"
        elif _GROUPED.fullmatch(text):
            remedy = "write it without the comma between thousands, or a point for a decimal comma"
        elif _DECIMAL_COMMA.fullmatch(text):
            remedy = "write a point in place of the decimal comma"
        fault = Fault("is not a number", given=f'"{text[:60]}"', remedy=remedy)
        raise UsageError(line.located(fault.about(metric)))
    # float() reads 1e400 as infinity.
    overflows = value is not None and math.isinf(value) and re.search(r"\d", text)
    if value is not None and (LARGEST_SCORE < abs(value) < math.inf or overflows):
        if len(text) > 12:
            text = f"{text[:12]}…"
        limit = f"{LARGEST_SCORE:g}".replace("+", "")
        fault = not_allowed(text, f"between -{limit} and {limit}")
        raise UsageError(line.located(fault.about(metric)))
    return value
