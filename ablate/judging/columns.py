"""The lines, columns and cells of a table that another program wrote."""

from __future__ import annotations

import math
import numbers
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from ablate.errors import Fault, Mark, UsageError, unknown_name
from ablate.formatting import first_few

EXPECTED_COLUMNS = (
    "expected the columns row, seed, metric and value, or row, seed and a column for each metric"
)
# Plain names (see `plain_name`) of columns. If a table has several columns of a kind, the first
# that is not empty is used.
ROW = ("ablate.row", "row", "group", "runname", "run name", "name")
SEED = ("ablate.seed", "seed", "random_seed")
STATE = ("ablate.outcome", "state", "status")
RUN = ("run", "run_id")
NOT_METRICS = {*ROW, *SEED, *STATE, *RUN}
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
BASES = ("base", "baseline", "control")  # default labels of base
DIVERGED = "diverged"  # state of a run, and also a score
LONGEST_NAME = 1000  # characters
# Characters that neither the HTML page nor the SVG figures can contain.
_INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# `to_csv` of pandas writes an index without a name, and `read_csv` gives it this one.
_UNNAMED = re.compile(r"(unnamed: \d+)?")
_PREFIX = re.compile(r"^(params\.|tags\.(mlflow\.)?|config[./])")


class Line(NamedTuple):
    """A line of a table. The functions that read a table return copies with further facts.

    place: position of the line in its table, for notes.
    cells: value in each column.
    n_replaced: number of earlier values at the same step, which this line replaces.
    number: position among the lines of the table.
    row: name of the row; empty without one.
    state: state of the run, one of FINISHED or DIVERGED; empty if no column has states.
    seed: seed of the run.
    mark: file and number of the line; None for a line of a data frame and an entry of an array.
    """

    place: str
    cells: Mapping[Any, Any]
    n_replaced: int = 0
    number: int = 0
    row: str = ""
    state: str = ""
    seed: int = 0
    mark: Mark | None = None

    def located(self, fault: Fault) -> Fault:
        """The fault with this line as its place, or before its subject if the line has no mark."""
        return fault.located(self.mark) if self.mark else fault.about(self.place)

    @property
    def run(self) -> tuple[str, int]:
        """The row and the seed, which identify a run."""
        return self.row, self.seed

    def text(self, column: str | None) -> str:
        """The text in a column; empty if the line has no value there, and for None."""
        return cell_text(self.cells.get(column))

    def integer_text(self, column: str | None) -> str:
        """The text in a column of integers: pandas writes 3 as 3.0 if a cell is missing."""
        return self.text(column).removesuffix(".0")


def numbered_lines(records: Iterable[Mapping[Any, Any]]) -> list[Line]:
    """The lines of a table without a file."""
    return [Line(f"line {number}", cells) for number, cells in enumerate(records, 1)]


class SourceTable:
    """A table that another program wrote: its columns, and its lines by them.

    Attributes:
        columns: name of each column as written, by its plain name.
        row_columns: plain names of the columns that name a row.
        lines: the lines of the table, with cells by plain names.
        notes: notes on lines that were left out, merged or interpreted.
        left_out: clauses on lines that were left out, for refusals of which they may be the cause.
        lost_rows: rows without a finished run.
        is_paired: whether runs of different rows with the same seed are paired.
    """

    def __init__(self, lines: Iterable[Line], row_columns: Sequence[str]) -> None:
        """Read the names of the columns.

        Args:
            lines: the lines of the table.
            row_columns: the columns that name a row; empty for the first of ROW with a value.

        Raises:
            UsageError: a column is unknown or ambiguous, or no column names the row.
        """
        self.columns: dict[str, str] = {}
        self.notes: list[str] = []
        self.left_out: list[str] = []
        self.lost_rows: list[str] = []
        self.is_paired = True
        self._clashes: dict[str, Fault] = {}  # by plain name
        self.lines: list[Line] = []
        for number, line in enumerate(lines, 1):
            cells = self._plain_cells(line)
            self.lines.append(line._replace(cells=cells, number=number))
        self._drop_numbers_of_lines(list(map(plain_name, row_columns)))
        for name in row_columns:
            if plain_name(name) not in self.columns:
                raise UsageError(unknown_name("column", name, self.columns))
            self.check_unambiguous(plain_name(name))
        self.row_columns = [plain_name(name) for name in row_columns]
        if not row_columns and (column := self.first_filled(self.lines, ROW)):
            self.row_columns = [column]
        if not any(line.text(name) for line in self.lines for name in self.row_columns):
            names = tuple(self.columns)
            remedy = (
                "rename one to row, or choose one with --by COLUMN (by=[COLUMN] in Python): "
                f"{first_few(names, 12)}"
            )
            texts = self._columns_of_texts()
            if len(texts) == 1:
                remedy = (
                    f"give --by {shlex.quote(texts[0])} (by={texts[0]!r} in Python), or rename the "
                    f"column of the rows to row; columns: {first_few(names, 12)}"
                )
            elif "" in self.columns:
                remedy = (
                    "name the column without a name row, if it has the rows; columns: "
                    f"{first_few([name or repr(name) for name in names], 12)}"
                )
            raise UsageError(Fault("no column names the row", remedy=remedy, choices=names))

    def _plain_cells(self, line: Line) -> dict[str, Any]:
        """The cells of a line by the plain names of their columns.

        If two columns have the same plain name, such as `seed` and `config.seed`, an empty cell of
        the first is filled from the second. If their values differ, the column is ambiguous.
        """
        cells: dict[str, Any] = {}
        for key, value in line.cells.items():
            name = str(key)
            plain = plain_name(name)
            first_name = self.columns.setdefault(plain, name)
            first_text = "" if first_name == name else cell_text(cells.get(plain))
            if not first_text:
                cells[plain] = value
                continue
            text = cell_text(value)
            if text and parse_setting(text) != parse_setting(first_text):
                clash = Fault(
                    f'have different values, "{first_text[:60]}" and "{text[:60]}"',
                    given=f'the columns "{first_name}" and "{name}"',
                    remedy="remove one of the two columns",
                )
                self._clashes.setdefault(plain, line.located(clash))
        return cells

    def _drop_numbers_of_lines(self, row_columns: Sequence[str]) -> None:
        """Drop a column without a name that only numbers the lines, as the index of pandas: then
        equal lines are equal, whatever their order.
        """
        for plain, name in list(self.columns.items()):
            numbers = [line.text(plain) for line in self.lines]
            are_numbers = all(map(str.isdecimal, numbers)) and len({*numbers}) == len(numbers)
            if not _UNNAMED.fullmatch(plain) or plain in row_columns or not are_numbers:
                continue
            del self.columns[plain]
            for index, line in enumerate(self.lines):
                cells = {key: cell for key, cell in line.cells.items() if key != plain}
                self.lines[index] = line._replace(cells=cells)
            column = f'column "{name}"' if name else "column without a name"
            self.notes.append(f"Left out: the {column}, which numbers the lines.")

    def _columns_of_texts(self) -> list[str]:
        """The columns, except of states and metrics, that have a text without a number in each
        line, and different ones.
        """
        found = []
        for plain, name in self.columns.items():
            texts = [line.text(plain) for line in self.lines]
            is_text = all(text and parse_number(text) is None for text in texts)
            if name and is_text and len(set(texts)) > 1 and plain not in (*STATE, "metric"):
                found.append(name)
        return found

    def check_unambiguous(self, plain: str) -> None:
        """Refuse a column if two columns with this plain name have different values."""
        if plain in self._clashes:
            raise UsageError(self._clashes[plain])

    def first_filled(self, lines: Sequence[Line], names: Iterable[str]) -> str | None:
        """The first of these columns in which a line has a value; None if all are empty.

        Raises:
            UsageError: the column is ambiguous.
        """
        for name in names:
            if name in self.columns and any(line.text(name) for line in lines):
                self.check_unambiguous(name)
                return name
        return None

    def step_columns(self, words: Sequence[str], metrics: Iterable[str]) -> list[str]:
        """The columns whose name ends with one of these words, in the order of the words. Columns
        that name a row or are a metric are left out.
        """
        columns: dict[str, list[str]] = {}
        excluded = {*self.row_columns, *map(plain_name, metrics)}
        for plain in self.columns:
            if not excluded & {plain, metric_name(plain)}:
                last_word = re.split(r"[/.]", plain)[-1].strip("_")  # W&B writes `_step`
                columns.setdefault(last_word, []).append(plain)
        return [name for word in words for name in columns.get(word, [])]


@cache
def plain_name(name: str) -> str:
    """The name of a column in lower case, without a prefix such as `params.` or `config/`."""
    return _PREFIX.sub("", name.strip().lower())


def metric_name(name: str) -> str:
    """The name of a metric without the prefix that MLflow gives to its column."""
    return name.removeprefix("metrics.")


def cell_text(cell: Any) -> str:
    """The text of a cell; empty for None and for the missing values of pandas."""
    if cell is None or is_nan(cell):
        return ""
    text = str(cell)
    return "" if text in ("<NA>", "NaT") else text.strip()


def is_nan(cell: Any) -> bool:
    """Whether a cell is the number NaN, not the text `nan`."""
    # `numbers.Number` includes the numbers of numpy and decimal. NA of pandas is not a number.
    return not isinstance(cell, str) and isinstance(cell, numbers.Number) and cell != cell


def parse_number(cell: Any) -> float | None:
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


def parse_setting(text: str) -> str | float:
    """The value of a setting or a seed: a finite number, so that `3e-4` equals `0.0003`; else the
    text.
    """
    number = parse_number(text)
    return text if number is None or not math.isfinite(number) else number


def appearance(row: str) -> object:
    """A key that is equal for names that look alike, such as spellings of a number, or names that
    differ in case, spaces, invisible characters or forms of a letter.
    """
    characters = unicodedata.normalize("NFKC", row)
    # U+FE0E and U+FE0F choose the picture of an emoji.
    visible = [c for c in characters if unicodedata.category(c) != "Cf" and c not in "\ufe0e\ufe0f"]
    return parse_setting(" ".join("".join(visible).split()).casefold())


def check_name(kind: str, name: str) -> None:
    """Refuse a name that is too long or cannot be printed."""
    if len(name) > LONGEST_NAME:
        problem = f"the name of a {kind} has {len(name):,} characters"
        allowed = f"of at most {LONGEST_NAME:,} characters"
        raise UsageError(Fault(problem, subject=f'"{name[:30]}…"', allowed=allowed))
    if invalid := _INVALID.search(name):
        problem = f"contains {invalid[0]!a}, which cannot be printed"
        raise UsageError(Fault(problem, given=f"the {kind} {name!a}", remedy="remove it"))
