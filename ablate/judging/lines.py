"""Scores in lines of others: tables of scores or of runs, and exports of dashboards.

What is left out, merged or assumed is counted by row in a note. What could change a verdict is
refused.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
# Plain names of columns, see `_plain`; the first that is there counts.
ROW = ("ablate.row", "row", "group", "runname", "run name", "name")
SEED = ("ablate.seed", "seed", "random_seed")
STATE, RUN = ("ablate.outcome", "state", "status"), ("run", "run_id")
# These say which of several lines are of one run.
RUN_NAMES = (*RUN, "trial_id", "id", "name", "runname", "run name")
# Steps of a training, without what an exporter writes before them, as in `trainer/global_step`.
STEP = (
    "step", "global_step", "global step", "iteration", "training_iteration", "iter", "env_step",
    "epoch",
)  # fmt: skip
# Numbers that grow along a training, too; in a table of runs they may be settings.
GROWING = (
    *STEP, "steps", "iterations", "iters", "num_steps", "env_steps", "num_env_steps", "epochs",
    "tokens", "samples", "examples",
)  # fmt: skip
# States of W&B, MLflow, ablate, Optuna, Ray Tune, Slurm and of clouds.
DIVERGED, USUAL = "diverged", ("finished", "done")
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
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # as in XML
LONGEST_NAME = 1000  # characters
_STARTS_WITH_DIGIT = re.compile(r"[-+]?\d")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_CONSTANTS = ("true", "false", "none", "null")
_MOST_DIGITS = 18  # of a seed that is a number; longer ones are names


class Line(dict[str, Any]):
    """The values of a line by column.

    Attributes:
        place: where it stands, for messages.
        replaced: number of earlier values at the same step.
    """

    def __init__(self, place: str, values: Mapping[Any, Any], replaced: int = 0) -> None:
        super().__init__(values)
        self.place, self.replaced = place, replaced


def numbers_of(
    lines: Sequence[Mapping[Any, Any]], metrics: Sequence[str] = (), by: Sequence[str] = ()
) -> tuple[list[Number], list[str]]:
    """The scores in lines, and what was left out, merged or assumed to read them.

    Args:
        lines: one for each score, with its metric and value, or for each run.
        metrics: to read, the one of the verdicts first; empty if there is only one.
        by: the columns whose values name a row; empty for the first of ROW.

    Raises:
        UsageError: a column is missing, it is not clear which one is meant, a value of a metric
            is no number, or lines do not say of which run they are.
    """
    table = _Table(lines)
    table.name_rows(by)
    table.leave_out_unfinished()
    table.check_rows()
    table.number_seeds(metrics)
    of_metrics = table.scores(metrics)
    if len(of_metrics) > 1 and not metrics:
        raise UsageError(
            "which metric is the verdict by? --metric NAME (metrics=[NAME] in Python), and again "
            f"for others to show; there are {first_few(list(of_metrics), 12)}"
        )
    names = list(dict.fromkeys(metrics or of_metrics))
    for name in names:
        if name not in of_metrics:
            raise UsageError(unknown_name("metric", name, of_metrics))
        _check_name("metric", name)
    table.check_steps({name: of_metrics[name] for name in names})
    runs = _runs(of_metrics)
    found: list[Number] = []
    for name in names:
        found += table.complete(name, of_metrics[name], runs, is_judged=name == names[0])
    _refuse_half_diverged(found)
    return found, table.notes


Scores = dict[int, Number]  # by the index of their lines


class _Table:
    """Lines with plain names of columns, and the row and the seed of each.

    Attributes:
        columns: plain names, with the names as written.
        notes: what was left out, merged or assumed.
    """

    def __init__(self, lines: Sequence[Mapping[Any, Any]]) -> None:
        self.columns: dict[str, str] = {}
        self.notes: list[str] = []
        self.lines: list[Line] = []
        self.rows: list[str] = []
        self.seeds: list[int] = []
        self.by: Sequence[str] = ()
        self._clashes: dict[str, str] = {}
        for count, line in enumerate(lines, 1):
            plain = Line(f"line {count}", {})
            if isinstance(line, Line):
                plain = Line(line.place, {}, line.replaced)
            for name, value in line.items():
                self._add(plain, str(name), value)
            self.lines.append(plain)

    def _add(self, line: Line, name: str, value: Any) -> None:
        """Add a value. Of two columns with one plain name, such as `seed` and `config.seed`, the
        one that has a value counts.
        """
        plain = _plain(name)
        first, before = self.columns.setdefault(plain, name), _text(line, plain)
        if before and first != name:
            text = _text({plain: value}, plain)
            if text and _spelling(text) != _spelling(before):
                self._clashes.setdefault(
                    plain,
                    f'{line.place}: the columns "{first}" and "{name}" have "{before[:60]}" and '
                    f'"{text[:60]}", and one of them is needed; leave the other out',
                )
            return
        line[plain] = value

    def _use(self, plain: str) -> str:
        """A column that is read: it must not be two that differ."""
        if plain in self._clashes:
            raise UsageError(self._clashes[plain])
        return plain

    def _first(self, names: Sequence[str]) -> str:
        """The first of some columns that has a value, else the first of all, which has none."""
        for name in names:
            if name in self.columns and any(_text(line, name) for line in self.lines):
                return self._use(name)
        return names[0]

    def name_rows(self, by: Sequence[str]) -> None:
        """Find the columns that name a row, and name the row of each line."""
        for name in by:
            if _plain(name) not in self.columns:
                raise UsageError(unknown_name("column", name, self.columns))
        self.by = [self._use(_plain(name)) for name in by] or [self._first(ROW)]
        if not any(_text(line, name) for line in self.lines for name in self.by):
            raise UsageError(
                f"no column says the row ({', '.join(ROW)}, or --row COLUMN, rows=[COLUMN] in "
                f"Python); {NEEDED}"
            )
        if by:
            self._merge_spellings()
        for line in self.lines:
            values = [_text(line, name) for name in self.by]
            if "" in values:
                self.rows.append("")
            elif len(values) == 1:
                self.rows += values
            else:
                settings = zip(self.by, values, strict=True)
                self.rows.append(" ".join(f"{name}={value}" for name, value in settings))

    def _merge_spellings(self) -> None:
        """Write equal numbers alike: `3e-4` as `0.0003`, whichever comes first."""
        for name in self.by:
            spelled: dict[str | float, str] = {}
            others = Counter[tuple[str, str]]()
            for line in self.lines:
                text = _text(line, name)
                line[name] = spelled.setdefault(_spelling(text), text)
                if line[name] != text:
                    others[text, line[name]] += 1
            for (text, first), count in others.items():
                self.notes.append(
                    f"{self.columns[name]}: {text} is read as {first} in {plural(count, 'line')}."
                )

    def leave_out_unfinished(self) -> None:
        """Leave out the lines of runs that have not ended, with a note, and mark those of diverged
        ones.
        """
        column, out = self._first(STATE), Counter[tuple[str, str]]()
        if not any(_text(line, column) for line in self.lines):
            return
        taken, kept = dict[str, None](), list[int]()
        for index, line in enumerate(self.lines):
            text = _text(line, column) or next(filter(None, (_text(line, n) for n in STATE)), "")
            word = text.lower().replace(" ", "_")
            if word in UNFINISHED or word.split("_")[0] in ("cancelled", "canceled"):
                out[self.rows[index], text] += 1
                continue
            if word not in (*FINISHED, DIVERGED):
                what = f'the state "{text[:60]}" is not known' if text else "has no state"
                raise UsageError(
                    f"{line.place}: {what}: runs with a score are "
                    f"{listed((*FINISHED, DIVERGED))}; leave the column "
                    f'"{self.columns.get(column, column)}" out if it is no state'
                )
            if word not in (*USUAL, DIVERGED):
                taken[text] = None
            line[STATE[0]] = word
            kept.append(index)
        if taken:
            self.notes.append(f"Taken for finished: the state {first_few(list(taken))}.")
        if out:
            texts = [
                f"{row or 'without a row'} {count} ({text})" for (row, text), count in out.items()
            ]
            self.notes.append(f"Lines left out, because not finished: {'; '.join(texts)}.")
        left = {self.rows[index] for index in kept}
        gone = [row for row, _ in out if row and row not in left]
        if gone:
            names = first_few(list(dict.fromkeys(gone)))
            self.notes.append(f"Without a finished run, and not counted as a row: {names}.")
        self._keep(kept)

    def _keep(self, kept: Sequence[int]) -> None:
        """Keep the lines with these indices."""
        self.lines = [self.lines[index] for index in kept]
        self.rows = [self.rows[index] for index in kept]

    def check_rows(self) -> None:
        """Leave out lines without a row, with a note, and refuse rows whose names look alike, or
        cannot be shown.
        """
        named = [index for index, row in enumerate(self.rows) if row]
        if len(named) < len(self.rows):
            columns = " or ".join(self.columns[name] for name in self.by)
            lines = plural(len(self.rows) - len(named), "line")
            first = self.lines[self.rows.index("")].place
            self.notes.append(
                f"WARNING: {lines} left out, because {columns} is empty (first {first}): the runs "
                f"are in no row, and the correction does not count them."
            )
        self._keep(named)
        alike: dict[object, str] = {}
        for row in dict.fromkeys(self.rows):
            _check_name("row", row)
            first = alike.setdefault(_look(row), row)
            if first != row:
                raise UsageError(
                    f"{first!a} and {row!a} are two rows, and look like one: write them alike, or "
                    f"give them names that differ"
                )

    def number_seeds(self, metrics: Sequence[str]) -> None:
        """Find the seed of each line. Names of rows that say the seed lose it.

        Args:
            metrics: that are asked for, and so are no steps.
        """
        column = self._first(SEED)
        texts = [_text(line, column).removesuffix(".0") for line in self.lines]
        in_names = [_SEED.findall(row) for row in self.rows]
        if any(texts):
            if "" in texts:
                raise UsageError(f"{plural(texts.count(''), 'line')} without a seed; {NEEDED}")
            # A name may have another seed too, as that of the data.
            if all(not said or said[0] == text for said, text in zip(in_names, texts, strict=True)):
                self._shorten_names()
        elif all(in_names):
            texts = [said[0] for said in in_names]
            self._shorten_names()
        elif any(in_names):
            with_seed = next(row for row, said in zip(self.rows, in_names, strict=True) if said)
            without = next(row for row, said in zip(self.rows, in_names, strict=True) if not said)
            raise UsageError(f'"{with_seed}" says a seed and "{without}" does not; {NEEDED}')
        else:
            texts = self._numbered(metrics)
        if all(text.isdecimal() and len(text) <= _MOST_DIGITS for text in texts):
            self.seeds = list(map(int, texts))
        else:
            seeds = [_spelling(text) for text in texts]  # 1e3 is 1000
            number_of = dict(zip(dict.fromkeys(seeds), itertools.count(1), strict=False))
            self.seeds = [number_of[seed] for seed in seeds]

    def _shorten_names(self) -> None:
        self.rows = [_SEED.sub("", row, count=1) or row for row in self.rows]

    def _numbered(self, metrics: Sequence[str]) -> list[str]:
        """Number the runs of each row in their order. Lines are of one run if a column says so."""
        names = [name for name in RUN_NAMES if name not in self.by]
        run = self._first(names)
        numbers, runs = [], dict[str, dict[object, None]]()
        met, repeated = Counter[object](), Counter[str]()
        lines_met = set[object]()
        for row, line in zip(self.rows, self.lines, strict=True):
            score = (row, *(_text(line, name) for name in ("metric", "item", "resample")))
            met[score] += 1
            known = runs.setdefault(row, {})
            of_run: object = _text(line, run) or met[score]
            known.setdefault(of_run)
            numbers.append(str(list(known).index(of_run) + 1))
            whole = (row, *((name, str(value)) for name, value in line.items()))
            repeated[row] += whole in lines_met
            lines_met.add(whole)
        if not any(_text(line, run) for line in self.lines):
            self._refuse_curves(metrics)
        counts = ", ".join(f"{row} {len(known)}" for row, known in runs.items())
        self.notes.append(
            f"No column seed: the runs of each row are numbered in their order ({counts})."
        )
        if +repeated:
            counts = ", ".join(f"{row} {count}" for row, count in (+repeated).items())
            self.notes.append(f"Equal to an earlier line, and counted as further runs: {counts}.")
        return numbers

    def _steps(self, words: Sequence[str], metrics: Iterable[str]) -> list[str]:
        """The columns that are named by some words, in their order, and neither name rows nor are
        metrics.
        """
        found: dict[str, list[str]] = {}
        others = {*self.by, *map(_plain, metrics)}
        for plain in self.columns:
            if not others & {plain, plain.removeprefix("metrics.")}:
                found.setdefault(re.split(r"[/.]", plain)[-1].strip("_"), []).append(plain)
        return [name for word in words for name in found.get(word, [])]

    def _refuse_curves(self, metrics: Sequence[str]) -> None:
        """Refuse lines at several steps that do not say of which run they are."""
        columns = self._steps(GROWING, metrics)
        steps: dict[tuple[str, str], set[tuple[str, ...]]] = {}
        for row, line in zip(self.rows, self.lines, strict=True):
            step = tuple(_text(line, name) for name in columns)
            steps.setdefault((row, _text(line, "metric")), set()).add(step)
        for (row, _), of_row in steps.items():
            if len(of_row) > 1:
                raise UsageError(
                    f"{row} has lines at {len(of_row)} steps, and no column says the seed or the "
                    f"run: evaluations of one training are not several seeds; give the last line "
                    f"of each run, with its seed"
                )

    def check_steps(self, of_metrics: Mapping[str, Scores]) -> None:
        """Note scores of different steps. They are refused if no state says that runs have ended
        there.
        """
        replaced = Counter[str]()
        for row, line in zip(self.rows, self.lines, strict=True):
            replaced[row] += line.replaced
        if +replaced:
            counts = ", ".join(f"{row} {count}" for row, count in (+replaced).items())
            self.notes.append(f"Values replaced by later ones at the same step: {counts}.")
        column = self._first([*self._steps(STEP, of_metrics), STEP[0]])
        for scores in of_metrics.values():
            by_row: dict[str, dict[str, None]] = {}
            for index in scores:
                step = _text(self.lines[index], column).removesuffix(".0") or "none"
                by_row.setdefault(self.rows[index], {})[step] = None
            if len(set(itertools.chain.from_iterable(by_row.values()))) < 2:
                continue
            texts = [f"{row} {first_few(list(steps))}" for row, steps in by_row.items()]
            where = f"scores of different steps: {first_few(texts)}"
            if all(STATE[0] in line for line in self.lines):
                self.notes.append(f"{where.capitalize()}.")
                return
            raise UsageError(
                f"{where}; give scores of one step, or if each run had ended there, a table "
                f'without the column "{self.columns.get(column, column)}"'
            )

    def scores(self, metrics: Sequence[str]) -> dict[str, Scores]:
        """The scores by metric, without empty cells. Those of a diverged run are not finite."""
        cells = self._wide(metrics)
        if {"metric", "value"} <= self.columns.keys():
            self._use("metric"), self._use("value")
            cells = (
                (at, _text(line, "metric"), line.get("value")) for at, line in enumerate(self.lines)
            )
        run, of_metrics, met = self._first(RUN), dict[str, Scores](), set[object]()
        for index, metric, cell in cells:
            line = self.lines[index]
            value = _value(cell, line, metric)
            if value is None:
                of_metrics.setdefault(metric, {})
                continue
            item, resample = _text(line, "item"), _text(line, "resample").removesuffix(".0")
            if not (resample or "0").isdecimal() or len(resample) > _MOST_DIGITS:
                raise UsageError(f'resample "{resample[:60]}" is not allowed: must be a number')
            of_run = (self.rows[index], self.seeds[index], metric, value)
            number = Number(*of_run, item, resample, _text(line, run))
            key = (*of_run[:3], item, resample)
            if key in met:
                raise UsageError(
                    f"{line.place}: {of_run[0]}, seed {of_run[1]}: {metric} has two values; a run "
                    f"has one, or one for each item"
                )
            met.add(key)
            of_metrics.setdefault(metric, {})[index] = number
        return of_metrics

    def _wide(self, metrics: Sequence[str]) -> Iterator[tuple[int, str, Any]]:
        """Index, metric and cell of columns. Of those that are not asked for, these are the ones
        whose name tells that they are metrics.
        """
        of_mlflow = any(name.startswith("metrics.") for name in self.columns)
        numeric: dict[str, str] = {}  # metric -> its column
        wanted = dict.fromkeys(metrics)
        others = {*ROW, *SEED, *STATE, *RUN, *self.by}
        for plain in self.columns:
            name = plain.removeprefix("metrics.")
            if plain in others or (of_mlflow and name == plain):
                continue
            if any(_number(line.get(plain)) is not None for line in self.lines):
                numeric[name] = plain
                if not metrics and (of_mlflow or direction_of(name) is not None):
                    wanted[name] = None
            # Numbers in another spelling, such as 27,1 or 27.1 %, which are refused below.
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
        self, metric: str, scores: Scores, runs: Mapping[tuple[str, int], bool], is_judged: bool
    ) -> list[Number]:
        """The scores of a metric, with those of runs that another metric says to have diverged.

        Args:
            metric: of the scores.
            scores: by line.
            runs: by row and seed, whether they diverged.
            is_judged: whether verdicts are by this metric, so that a run without it is refused.
        """
        having, missing = {(one.row, one.seed) for one in scores.values()}, list[str]()
        numbers = dict(scores)
        for index, line in enumerate(self.lines):
            key = (self.rows[index], self.seeds[index])
            if key in having:
                continue
            having.add(key)
            if runs.get(key):
                run = _text(line, self._first(RUN))
                numbers[index] = Number(*key, metric, math.nan, run=run)
            else:
                missing.append(key[0])
                if is_judged:
                    raise UsageError(
                        f"{line.place}: {key[0]}, seed {key[1]}, has no {metric}; write nan if the "
                        f"run diverged, or leave its lines out"
                    )
        if missing:
            counts = ", ".join(f"{row} {count}" for row, count in Counter(missing).items())
            self.notes.append(f"Runs without {metric}: {counts}.")
        return [numbers[index] for index in sorted(numbers)]


def _runs(of_metrics: Mapping[str, Scores]) -> dict[tuple[str, int], bool]:
    """Whether each run diverged, by row and seed: whether some score is not finite."""
    runs: dict[tuple[str, int], bool] = {}
    for scores in of_metrics.values():
        for one in scores.values():
            key = (one.row, one.seed)
            runs[key] = runs.get(key, False) or not math.isfinite(one.value)
    return runs


def _refuse_half_diverged(numbers: Iterable[Number]) -> None:
    """Refuse runs that have diverged in one metric and not in another."""
    of_runs: dict[tuple[str, int], dict[bool, Number]] = {}
    for one in numbers:
        known = of_runs.setdefault((one.row, one.seed), {})
        known.setdefault(math.isfinite(one.value), one)
        if len(known) == 2 and known[True].metric != known[False].metric:
            raise UsageError(
                f"{one.row}, seed {one.seed}: {known[False].metric} is {known[False].value}, and "
                f"{known[True].metric} {known[True].value:g}; write nan for both if the run "
                f"diverged, or leave the value that is no number out"
            )


def _check_name(kind: str, name: str) -> None:
    """Refuse names that no page and no line can show."""
    if len(name) > LONGEST_NAME:
        raise UsageError(
            f'a {kind} has a name of {len(name):,} characters, "{name[:30]}…": at most '
            f"{LONGEST_NAME:,} are allowed"
        )
    if found := _NO_TEXT.search(name):
        raise UsageError(
            f"the {kind} {name!a} has the character {found[0]!a}, which is no text; remove it"
        )


@cache
def _plain(name: str) -> str:
    return _PREFIX.sub("", name.strip().lower())


def _text(line: Mapping[str, Any], column: str) -> str:
    """What a cell has; empty without one, and for what pandas writes where there is none."""
    value = line.get(column)
    if value is None or str(value) in ("<NA>", "NaT") or (_is_nan(value)):
        return ""
    return str(value).strip()


def _is_nan(value: Any) -> bool:
    # Of numpy and decimal, too; pandas' NA is no number.
    return isinstance(value, AnyNumber) and value != value


def _spelling(text: str) -> str | float:
    """A number, or the text: equal for texts that mean the same."""
    value = _finite(text)
    return text if value is None else value


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def _look(row: str) -> object:
    """Equal for names that a reader may take for one: numbers, `true` and `True`, blanks, invisible
    characters, and forms of one letter.
    """
    shown = [c for c in unicodedata.normalize("NFKC", row) if unicodedata.category(c) != "Cf"]
    text = " ".join("".join(shown).split())
    # Python, JSON and YAML write these words in different cases.
    return text.lower() if text.lower() in _CONSTANTS else _spelling(text)


def _number(value: Any) -> float | None:
    """The number in a cell: NaN for the word of a diverged run, None for other text."""
    if isinstance(value, str) and value.strip().lower() == DIVERGED:
        return math.nan
    if isinstance(value, str) and "_" in value:  # which Python takes for a comma
        return None
    if type(value).__name__ in ("bool", "bool_"):  # Python and numpy take them for 1 and 0
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    except OverflowError:  # an integer of hundreds of digits
        return math.inf
    return number


def _value(cell: Any, line: Line, metric: str) -> float | None:
    """The value of a metric; an empty cell has none.

    A file says `nan` for a run that diverged. In a frame NaN is what pandas has for a cell without
    a value, so that it may be either.
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
    # As in results, because squares must not overflow. A number may be read as infinite.
    is_written = value is not None and math.isinf(value) and re.search(r"\d", text)
    if value is not None and (LARGEST_SCORE < abs(value) < math.inf or is_written):
        shown = text[:12] + "…" * (len(text) > 12)
        raise UsageError(
            f"{line.place}: {metric} {shown} is not allowed: must be between -1e100 and 1e100"
        )
    return value
