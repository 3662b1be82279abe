"""Read scores from tables that other programs wrote. A line has one score, or all scores of a run.

The notes say, for each row, how many lines were left out, merged or interpreted. Lines that would
make a verdict doubtful are refused.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from numbers import Number
from typing import Any

from ablate.errors import UsageError, listed, unknown_name
from ablate.formatting import first_few, plural
from ablate.judging.scores import RunMeasurement, direction_of
from ablate.stats.metrics import LARGEST_SCORE

EXPECTED_COLUMNS = (
    "expected the columns row, seed, metric and value, or row, seed and a column for each metric"
)
# Plain names (see `_plain`) of columns. If a table has several columns of a kind, the first that is
# not empty is used.
ROW = ("ablate.row", "row", "group", "runname", "run name", "name")
SEED = ("ablate.seed", "seed", "random_seed")
STATE = ("ablate.outcome", "state", "status")
RUN = ("run", "run_id")
# Names of columns that identify the run of a line.
RUN_NAMES = (*RUN, "trial_id", "id", "name", "runname", "run name")
# Names of columns of training steps. A prefix, such as `trainer/`, is ignored.
STEP = (
    "step", "global_step", "global step", "iteration", "training_iteration", "iter", "env_step",
    "epoch",
)  # fmt: skip
# Names of columns of quantities that grow during training. In a table with a line for each run,
# these quantities may also be settings.
GROWING = (
    *STEP, "steps", "iterations", "iters", "num_steps", "env_steps", "num_env_steps", "epochs",
    "tokens", "samples", "examples",
)  # fmt: skip
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
# States of runs in W&B, MLflow, ablate, Optuna, Ray Tune, Slurm and cloud services.
DIVERGED = "diverged"
USUAL = ("finished", "done")  # read as finished without a note
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
# Characters that neither the HTML page nor the SVG figures can contain.
_INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
LONGEST_NAME = 1000  # characters
_STARTS_WITH_DIGIT = re.compile(r"[-+]?\d")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_CONSTANTS = ("true", "false", "none", "null")
_MOST_DIGITS = 18  # seeds with more digits are read as text


class Line(dict[str, Any]):
    """The values of a line by column.

    Attributes:
        place: position of the line in the file, for messages.
        replaced: number of earlier values at the same step, which this line replaces.
        state: state of the run, one of FINISHED or DIVERGED; empty if no column has states.
        row: name of the row; empty until it is known, and for a line without a row.
        seed: seed of the run; 0 until it is known.
    """

    def __init__(self, place: str, values: Mapping[Any, Any], replaced: int = 0) -> None:
        super().__init__(values)
        self.place = place
        self.replaced = replaced
        self.state = ""
        self.row = ""
        self.seed = 0


def read_measurements(
    lines: Sequence[Mapping[Any, Any]], metrics: Sequence[str] = (), row_columns: Sequence[str] = ()
) -> tuple[list[RunMeasurement], list[str]]:
    """Read the scores in lines.

    Args:
        lines: a line for each score, with columns for its metric and value, or a line for each run,
            with a column for each metric.
        metrics: the metrics to read, first the metric of the verdicts; empty if there is only one.
        row_columns: the columns whose values name a row; empty for the first column of ROW that has
            a value.

    Returns:
        The scores, and notes on lines that were left out, merged or interpreted.

    Raises:
        UsageError: a column is missing or ambiguous, a value of a metric is not a number, or the
            run of a line is unknown.
    """
    table = _Table(lines)
    table.name_rows(row_columns)
    table.leave_out_unfinished()
    table.check_rows()
    table.number_seeds(metrics)
    scores = table.scores(metrics)
    if len(scores) > 1 and not metrics:
        raise UsageError(
            "several metrics: name the metric of the verdicts with --metric NAME (metrics=[NAME] "
            "in Python), and repeat --metric for metrics that are only shown; found "
            f"{first_few(list(scores), 12)}"
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
    measurements: list[RunMeasurement] = []
    for name in names:
        measurements += table.complete(name, scores[name], diverged, is_judged=name == names[0])
    _refuse_half_diverged(measurements)
    return measurements, table.notes


ScoresByLine = dict[int, RunMeasurement]  # index of a line -> score in one metric


class _Table:
    """Lines whose columns have plain names.

    Attributes:
        columns: name of each column as written, by its plain name.
        notes: notes on lines that were left out, merged or interpreted.
        lines: lines of finished or diverged runs.
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

        If two columns have the same plain name, such as `seed` and `config.seed`, the value of the
        first is kept. A different value in the second is refused once the column is used.
        """
        plain = _plain(name)
        first_name = self.columns.setdefault(plain, name)
        first_text = _text(line, plain)
        if first_text and first_name != name:
            text = _cell_text(value)
            if text and _parse_setting(text) != _parse_setting(first_text):
                self._clashes.setdefault(
                    plain,
                    f'{line.place}: the columns "{first_name}" and "{name}" have different '
                    f'values, "{first_text[:60]}" and "{text[:60]}"; remove one of the two columns',
                )
            return
        line[plain] = value

    def _check_unambiguous(self, plain: str) -> None:
        """Refuse a column if two columns with this plain name have different values."""
        if plain in self._clashes:
            raise UsageError(self._clashes[plain])

    def _first_filled(self, names: Sequence[str]) -> str:
        """The first of these columns that is not empty; the first name if all are empty."""
        for name in names:
            if name in self.columns and any(_text(line, name) for line in self.lines):
                self._check_unambiguous(name)
                return name
        return names[0]

    def name_rows(self, row_columns: Sequence[str]) -> None:
        """Find the columns that name a row, and name the row of each line."""
        for name in row_columns:
            if _plain(name) not in self.columns:
                raise UsageError(unknown_name("column", name, self.columns))
            self._check_unambiguous(_plain(name))
        self.row_columns = [_plain(name) for name in row_columns] or [self._first_filled(ROW)]
        if not any(_text(line, name) for line in self.lines for name in self.row_columns):
            raise UsageError(
                f"no column names the row; name one of your columns {', '.join(ROW)}, or choose "
                f"one with --by COLUMN (by=[COLUMN] in Python); {EXPECTED_COLUMNS}"
            )
        if row_columns:
            self._merge_spellings()
        for line in self.lines:
            values = [_text(line, name) for name in self.row_columns]
            if "" in values:
                continue  # a line without a row
            line.row = values[0]
            if len(values) > 1:
                settings = zip(self.row_columns, values, strict=True)
                line.row = " ".join(f"{name}={value}" for name, value in settings)

    def _merge_spellings(self) -> None:
        """Give equal numbers in the names of rows the same spelling, the one that comes first: then
        `3e-4` and `0.0003` name the same row.
        """
        for name in self.row_columns:
            first_spelling: dict[str | float, str] = {}
            replaced = Counter[tuple[str, str]]()
            for line in self.lines:
                text = _text(line, name)
                line[name] = first_spelling.setdefault(_parse_setting(text), text)
                if line[name] != text:
                    replaced[text, line[name]] += 1
            for (text, first), count in replaced.items():
                self.notes.append(
                    f"{self.columns[name]}: {text} is read as {first} in {plural(count, 'line')}."
                )

    def leave_out_unfinished(self) -> None:
        """Leave out the lines of unfinished runs, with a note, and set the state of the lines that
        are left.
        """
        column = self._first_filled(STATE)
        if not any(_text(line, column) for line in self.lines):
            return
        unfinished = Counter[tuple[str, str]]()  # (row, state)
        unusual_states: dict[str, None] = {}
        finished: list[Line] = []
        for line in self.lines:
            # A joined table may have the states of different lines in different columns.
            texts = (_text(line, name) for name in (column, *STATE))
            text = next(filter(None, texts), "")
            word = text.lower().replace(" ", "_")
            if word in UNFINISHED or word.split("_")[0] in ("cancelled", "canceled"):
                unfinished[line.row, text] += 1
                continue
            if word not in (*FINISHED, DIVERGED):
                problem = f'the state "{text[:60]}" is not known' if text else "has no state"
                raise UsageError(
                    f"{line.place}: {problem}; the state of a run with a score is "
                    f"{listed((*FINISHED, DIVERGED))}; if the column "
                    f'"{self.columns.get(column, column)}" is not the state of a run, remove it'
                )
            if word not in (*USUAL, DIVERGED):
                unusual_states[text] = None
            line.state = word
            finished.append(line)
        if unusual_states:
            states = first_few(list(unusual_states))
            self.notes.append(f"Read as finished: the state {states}.")
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
            self.notes.append(f"Rows left out, because no run is finished: {names}.")
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
                f"(first {unnamed[0].place}): these runs belong to no row, and Holm's correction "
                f"does not count them."
            )
        self.lines = [line for line in self.lines if line.row]
        row_by_appearance: dict[object, str] = {}
        for row in dict.fromkeys(line.row for line in self.lines):
            _check_name("row", row)
            first = row_by_appearance.setdefault(_appearance(row), row)
            if first != row:
                raise UsageError(
                    f"the rows {first!a} and {row!a} look alike: write them in the same way if "
                    f"they are one row; else give them different names"
                )

    def number_seeds(self, metrics: Sequence[str]) -> None:
        """Find the seed of each line, in a column or in the name of the row. If neither has it,
        number the runs. Seeds are removed from the names of rows.

        Args:
            metrics: the requested metrics; a column of a metric is not read as training steps, even
                if it is named `steps`.
        """
        column = self._first_filled(SEED)
        texts = [_text(line, column).removesuffix(".0") for line in self.lines]
        name_seeds = [_SEED.findall(line.row) for line in self.lines]
        if any(texts):
            if "" in texts:
                lines = plural(texts.count(""), "line")
                raise UsageError(f"{lines} without a seed; {EXPECTED_COLUMNS}")
            # The seed in a name may be another one, such as the seed of the data. Then it stays.
            pairs = zip(name_seeds, texts, strict=True)
            if all(not seeds or seeds[0] == text for seeds, text in pairs):
                self._shorten_names()
        elif all(name_seeds):
            texts = [seeds[0] for seeds in name_seeds]
            self._shorten_names()
        elif any(name_seeds):
            seeded = next(line.row for line in self.lines if _SEED.search(line.row))
            unseeded = next(line.row for line in self.lines if not _SEED.search(line.row))
            raise UsageError(
                f'the name "{seeded}" has a seed, and "{unseeded}" has none; {EXPECTED_COLUMNS}'
            )
        else:
            texts = self._number_runs(metrics)
        are_numbers = all(text.isdecimal() and len(text) <= _MOST_DIGITS for text in texts)
        if not are_numbers:
            _refuse_summaries(texts)
        numbers: dict[str | float, int] = {}
        for line, text in zip(self.lines, texts, strict=True):
            if are_numbers:
                line.seed = int(text)
            else:
                # 1e3 is the same seed as 1000
                line.seed = numbers.setdefault(_parse_setting(text), len(numbers) + 1)

    def _shorten_names(self) -> None:
        """Remove the seed from the names of rows."""
        for line in self.lines:
            line.row = _SEED.sub("", line.row, count=1) or line.row

    def _number_runs(self, metrics: Sequence[str]) -> list[str]:
        """Number the runs of each row 1, 2, ... in order of appearance, and return the number for
        each line.

        Lines with the same run name belong to one run. Without run names, the n-th line of a row
        with the same metric, item and resample belongs to the n-th run.
        """
        names = [name for name in RUN_NAMES if name not in self.row_columns]
        run_column = self._first_filled(names)
        numbers = []
        numbers_by_run: dict[str, dict[str | int, int]] = {}  # row -> run -> number
        score_counts = Counter[object]()
        duplicates = Counter[str]()
        seen_lines: set[object] = set()
        for line in self.lines:
            texts = [_text(line, name) for name in ("metric", "item", "resample")]
            score_key = (line.row, *texts)
            score_counts[score_key] += 1
            row_runs = numbers_by_run.setdefault(line.row, {})
            # The count identifies the run of a line without a run name.
            run = _text(line, run_column) or score_counts[score_key]
            numbers.append(str(row_runs.setdefault(run, len(row_runs) + 1)))
            content = (line.row, *((name, str(value)) for name, value in line.items()))
            if content in seen_lines:
                duplicates[line.row] += 1
            seen_lines.add(content)
        if not any(_text(line, run_column) for line in self.lines):
            self._refuse_curves(metrics)
        counts = _counts_text({row: len(row_runs) for row, row_runs in numbers_by_run.items()})
        self.notes.append(
            f"No column seed: the runs of each row are numbered in their order ({counts})."
        )
        if duplicates:
            self.notes.append(
                "Lines equal to an earlier line, counted as further runs: "
                f"{_counts_text(duplicates)}."
            )
        return numbers

    def _step_columns(self, words: Sequence[str], metrics: Iterable[str]) -> list[str]:
        """The columns whose name ends with one of these words, in the order of the words. Columns
        that name a row or are a metric are left out.
        """
        columns: dict[str, list[str]] = {}
        excluded = {*self.row_columns, *map(_plain, metrics)}
        for plain in self.columns:
            if not excluded & {plain, plain.removeprefix("metrics.")}:
                last_word = re.split(r"[/.]", plain)[-1].strip("_")
                columns.setdefault(last_word, []).append(plain)
        return [name for word in words for name in columns.get(word, [])]

    def _refuse_curves(self, metrics: Sequence[str]) -> None:
        """Refuse lines of a row at several steps: evaluations of one training would be mistaken for
        several runs.
        """
        columns = self._step_columns(GROWING, metrics)
        steps: dict[tuple[str, str], set[tuple[str, ...]]] = {}
        for line in self.lines:
            step = tuple(_text(line, name) for name in columns)
            steps.setdefault((line.row, _text(line, "metric")), set()).add(step)
        for (row, _), row_steps in steps.items():
            if len(row_steps) > 1:
                raise UsageError(
                    f"{row} has lines at {len(row_steps)} steps, and no column has the seed or "
                    f"the run: evaluations of one training are not several seeds; keep only the "
                    f"last line of each run, and add its seed"
                )

    def check_steps(self, metric_scores: Mapping[str, ScoresByLine]) -> None:
        """Refuse scores of different steps. If every line has a state, these are the final steps of
        the runs, and a note is enough; likewise for columns that may be a setting of the rows.
        """
        replaced = Counter[str]()
        for line in self.lines:
            if line.replaced:
                replaced[line.row] += line.replaced
        if replaced:
            counts = _counts_text(replaced)
            self.notes.append(f"Values replaced by later values at the same step: {counts}.")
        step_columns = self._step_columns(STEP, metric_scores)
        if step_columns:
            column = self._first_filled(step_columns)
            rows = self._different_steps(column, metric_scores)
            if rows and not all(line.state for line in self.lines):
                raise UsageError(
                    f"scores of different steps: {rows}; keep the scores of one step, or, if these "
                    f'are the last steps of the runs, remove the column "{self.columns[column]}"'
                )
            if rows:
                self.notes.append(f"Scores of different steps: {rows}.")
        for column in self._step_columns(GROWING, (*metric_scores, *step_columns)):
            if rows := self._different_steps(column, metric_scores):  # may be a setting of the rows
                self.notes.append(f"Scores of different {self.columns[column]}: {rows}.")

    def _different_steps(self, column: str, metric_scores: Mapping[str, ScoresByLine]) -> str:
        """The steps of each row in a column; empty if all scores of each metric have one step."""
        for scores in metric_scores.values():
            row_steps: dict[str, dict[str, None]] = {}
            for index, score in scores.items():
                step = _text(self.lines[index], column).removesuffix(".0") or "none"
                row_steps.setdefault(score.row, {})[step] = None
            if len(set(itertools.chain.from_iterable(row_steps.values()))) > 1:
                return first_few(
                    [f"{row} {first_few(list(steps))}" for row, steps in row_steps.items()]
                )
        return ""

    def check_measured(self, metric_scores: Mapping[str, ScoresByLine]) -> None:
        """Refuse scores of a metric that were measured on different text, in different ways, or on
        differently chosen checkpoints.
        """
        for column in (*MEASURED, *CHECKPOINT):
            if column not in self.columns or column in self.row_columns:
                continue
            for metric, scores in metric_scores.items():
                first: dict[str, str] = {}  # what is compared -> the first row with it, as written
                for index, score in scores.items():
                    if not math.isfinite(score.value):  # a diverged run was not measured
                        continue
                    compared = text = _text(self.lines[index], column)
                    if column in CHECKPOINT:
                        words = set(re.findall("[a-z]+", text.lower()))
                        compared = " ".join(sorted(words & CHECKPOINT_WORDS))
                    first.setdefault(compared, f"{score.row} {text[:60] or 'none'}")
                if len(first) > 1:
                    self._check_unambiguous(column)
                    name = self.columns[column]
                    raise UsageError(
                        f'{metric} has scores with different values of "{name}": '
                        f"{first_few(list(first.values()))}; keep the scores of one value, or, if "
                        "the values are settings of the rows, remove the column"
                    )

    def scores(self, metrics: Sequence[str]) -> dict[str, ScoresByLine]:
        """The scores by metric. Empty cells are skipped. Scores of diverged runs are not finite.

        Raises:
            UsageError: a score is not a number, or a run has two values of one metric.
        """
        if {"metric", "value"} <= self.columns.keys():
            cells = self._value_cells()
        else:
            cells = self._metric_cells(metrics)
        run_column = self._first_filled(RUN)
        scores: dict[str, ScoresByLine] = {}
        seen: set[object] = set()
        for index, metric, cell in cells:
            line = self.lines[index]
            value = _parse_score(cell, line, metric)
            if value is None:
                scores.setdefault(metric, {})
                continue
            item = _text(line, "item")
            resample = _text(line, "resample").removesuffix(".0")
            if not (resample or "0").isdecimal() or len(resample) > _MOST_DIGITS:
                raise UsageError(f'resample "{resample[:60]}" is not allowed: must be a number')
            key = (line.row, line.seed, metric, item, resample)
            if key in seen:
                raise UsageError(
                    f"{line.place}: {line.row}, seed {line.seed}: {metric} has two values; a run "
                    f"has one value, or one for each item"
                )
            seen.add(key)
            scores.setdefault(metric, {})[index] = RunMeasurement(
                line.row, line.seed, metric, value, item, resample, _run_id(line, run_column)
            )
        return scores

    def _value_cells(self) -> Iterator[tuple[int, str, Any]]:
        """Yield (index of the line, metric, cell) for each line of a table with one score a
        line.
        """
        self._check_unambiguous("metric")
        self._check_unambiguous("value")
        for index, line in enumerate(self.lines):
            yield index, _text(line, "metric"), line.get("value")

    def _metric_cells(self, metrics: Sequence[str]) -> Iterator[tuple[int, str, Any]]:
        """Yield (index of the line, metric, cell) for each line and each column of a metric. If
        `metrics` is empty, every column is taken as a metric if its name tells whether higher is
        better; in a table of MLflow, every numeric column of `metrics.`.
        """
        is_mlflow = any(name.startswith("metrics.") for name in self.columns)
        numeric: dict[str, str] = {}  # metric -> column
        wanted = dict.fromkeys(metrics)
        excluded = {*ROW, *SEED, *STATE, *RUN, *self.row_columns}
        for plain in self.columns:
            name = plain.removeprefix("metrics.")
            if plain in excluded or (is_mlflow and name == plain):
                continue
            if any(_parse_number(line.get(plain)) is not None for line in self.lines):
                numeric[name] = plain
                if not metrics and (is_mlflow or direction_of(name) is not None):
                    wanted[name] = None
            # Cells such as 27,1 or 27.1 % are refused by `_parse_score`.
            elif not metrics and direction_of(name) is not None and self._has_digits(plain):
                wanted[name] = None
        if not wanted:
            raise UsageError(
                "which column is the metric? give --metric NAME (metrics=[NAME] in Python), and "
                "--higher-is-better NAME or --lower-is-better NAME if the name does not tell; "
                f"numeric columns: {first_few(list(numeric), 12) or 'none'}; {EXPECTED_COLUMNS}"
            )
        for name in wanted:
            plain = numeric.get(name) or numeric.get(_plain(name)) or _plain(name)
            if plain not in self.columns:
                raise UsageError(unknown_name("metric", name, numeric))
            self._check_unambiguous(plain)
            for index, line in enumerate(self.lines):
                yield index, name, line.get(plain)

    def _has_digits(self, column: str) -> bool:
        return any(_STARTS_WITH_DIGIT.match(_text(line, column)) for line in self.lines)

    def complete(
        self,
        metric: str,
        scores: ScoresByLine,
        diverged: Collection[tuple[str, int]],
        is_judged: bool,
    ) -> list[RunMeasurement]:
        """The scores of a metric, with NaN for each diverged run that has no score in the metric.

        Args:
            metric: name of the metric.
            scores: scores in this metric, by line.
            diverged: (row, seed) of the runs that diverged in any metric.
            is_judged: whether the verdicts use the metric. If so, a run that neither diverged nor
                has a score is refused; otherwise such runs are counted in a note.
        """
        run_column = self._first_filled(RUN)
        scored_runs = {(score.row, score.seed) for score in scores.values()}
        missing = Counter[str]()
        completed = dict(scores)
        for index, line in enumerate(self.lines):
            run = (line.row, line.seed)
            if run in scored_runs:
                continue
            scored_runs.add(run)
            if run in diverged:
                run_id = _run_id(line, run_column)
                completed[index] = RunMeasurement(*run, metric, math.nan, run=run_id)
                continue
            missing[line.row] += 1
            if is_judged:
                raise UsageError(
                    f"{line.place}: {line.row}, seed {line.seed}, has no {metric}; write inf if "
                    f"the run diverged, or remove the lines of the run"
                )
        if missing:
            self.notes.append(f"Runs without {metric}: {_counts_text(missing)}.")
        return [completed[index] for index in sorted(completed)]


def _counts_text(counts: Mapping[str, int]) -> str:
    """Names with their counts, such as `base 2, wide 1`."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _diverged_runs(metric_scores: Mapping[str, ScoresByLine]) -> set[tuple[str, int]]:
    """(row, seed) of the runs with a score that is not finite."""
    runs = set()
    for scores in metric_scores.values():
        for score in scores.values():
            if not math.isfinite(score.value):
                runs.add((score.row, score.seed))
    return runs


def _refuse_half_diverged(scores: Iterable[RunMeasurement]) -> None:
    """Refuse runs that have diverged in one metric and not in another."""
    # The first finite and the first non-finite score of each run, by (row, seed, is finite).
    first: dict[tuple[str, int, bool], RunMeasurement] = {}
    for score in scores:
        first.setdefault((score.row, score.seed, math.isfinite(score.value)), score)
    for (row, seed, is_finite), score in first.items():
        finite = first.get((row, seed, True))
        if not is_finite and finite is not None and finite.metric != score.metric:
            raise UsageError(
                f"{row}, seed {seed}: {score.metric} is {score.value}, and {finite.metric} "
                f"{finite.value:g}; write inf for both if the run diverged; else remove the "
                f"{score.value}"
            )


def _refuse_summaries(seeds: Sequence[str]) -> None:
    """Refuse a seed without a digit, such as `mean` or `std`, if other seeds have digits."""
    words = [seed for seed in seeds if not any(map(str.isdecimal, seed))]
    if words and len(words) < len(seeds):
        raise UsageError(
            f'the seed "{words[0][:60]}" is not a number, and other seeds are: lines with a mean '
            "or a standard deviation are not runs; remove them"
        )


def _check_name(kind: str, name: str) -> None:
    """Refuse names that cannot be printed."""
    if len(name) > LONGEST_NAME:
        raise UsageError(
            f'the name of a {kind} has {len(name):,} characters, "{name[:30]}…": at most '
            f"{LONGEST_NAME:,} are allowed"
        )
    if invalid := _INVALID.search(name):
        raise UsageError(
            f"the {kind} {name!a} contains {invalid[0]!a}, which cannot be printed; remove it"
        )


@cache
def _plain(name: str) -> str:
    """The name of a column in lower case, without a prefix such as `params.` or `config/`."""
    return _PREFIX.sub("", name.strip().lower())


def _run_id(line: Line, column: str) -> str:
    """The id of the trained model of a line, which rows may share. Empty if the cell is a plain
    number, which only counts runs within a row and identifies no model.
    """
    text = _text(line, column).removesuffix(".0")
    return "" if text.isdecimal() else text


def _text(line: Mapping[str, Any], column: str) -> str:
    """The text of a line's cell in a column; empty if the line has no such cell."""
    return _cell_text(line.get(column))


def _cell_text(cell: Any) -> str:
    """The text of a cell; empty for None and for the missing values of pandas."""
    if cell is None or str(cell) in ("<NA>", "NaT") or _is_nan(cell):
        return ""
    return str(cell).strip()


def _is_nan(cell: Any) -> bool:
    # `Number` includes the numbers of numpy and decimal. NA of pandas is not a number.
    return isinstance(cell, Number) and cell != cell


def _parse_setting(text: str) -> str | float:
    """The value of a setting or a seed: a finite number, so that `3e-4` equals `0.0003`; else the
    text.
    """
    number = _parse_number(text)
    return text if number is None or not math.isfinite(number) else number


def _appearance(row: str) -> object:
    """A key that is equal for names that look alike, such as spellings of a number, `true` and
    `True`, or names that differ in spaces, invisible characters or forms of a letter.
    """
    characters = unicodedata.normalize("NFKC", row)
    # U+FE0E and U+FE0F choose the picture of an emoji.
    visible = [c for c in characters if unicodedata.category(c) != "Cf" and c not in "\ufe0e\ufe0f"]
    text = " ".join("".join(visible).split())
    # Python, JSON and YAML write these words in different cases.
    return text.lower() if text.lower() in _CONSTANTS else _parse_setting(text)


def _parse_number(cell: Any) -> float | None:
    """The number in a cell: NaN for `nan` and `diverged`, None for other text and for booleans."""
    if isinstance(cell, str) and cell.strip().lower() == DIVERGED:
        return math.nan
    if isinstance(cell, str) and "_" in cell:  # float() accepts 1_000
        return None
    if type(cell).__name__ in ("bool", "bool_"):  # float() accepts True
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def _parse_score(cell: Any, line: Line, metric: str) -> float | None:
    """The score in a cell: None for an empty cell, and not finite for a diverged run.

    The text `nan` means a diverged run. The number NaN of a data frame is refused, because pandas
    also writes it for a missing value.
    """
    if line.state == DIVERGED:
        return math.nan
    if _is_nan(cell):
        raise UsageError(
            f"{line.place}: {metric} is NaN, which may mean a missing value or a diverged run; "
            "remove the line, or write inf if the run diverged"
        )
    value = _parse_number(cell)
    text = _cell_text(cell)
    if value is None and text:
        remedy = "write inf if the run diverged"
        if _DECIMAL_COMMA.fullmatch(text):
            remedy = "write a point in place of the decimal comma"
        raise UsageError(f'{line.place}: {metric} "{text[:60]}" is not a number; {remedy}')
    # The results root allows the same range (LARGEST_SCORE). float() reads 1e400 as infinity.
    overflows = value is not None and math.isinf(value) and re.search(r"\d", text)
    if value is not None and (LARGEST_SCORE < abs(value) < math.inf or overflows):
        if len(text) > 12:
            text = f"{text[:12]}…"
        raise UsageError(
            f"{line.place}: {metric} {text} is not allowed: must be between -1e100 and 1e100"
        )
    return value
