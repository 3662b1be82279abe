"""Select rows and seeds by `--rows` and `--seeds`, and find a row by its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from ablate.errors import Fault, not_allowed, unknown_name, wrong_option
from ablate.formatting import first_few
from ablate.stats.power import MAX_SEEDS
from ablate.study.row import Row
from ablate.study.runs import Runs
from ablate.study.seeds import Seeds

MAX_RUNS = 100_000
_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")


@dataclass(frozen=True)
class Selection:
    """The options that change a study or select a part of it.

    overrides: texts of `--set`.
    rows: texts of `--rows`.
    seeds: text of `--seeds`.
    data_folder: absolute path that replaces `data.folder`, given by a program. It is not parsed as
        a value of `--set`.
    origin: the original of which the study file is a copy; relative paths of the data start from
        its folder.
    """

    overrides: Sequence[str] = ()
    rows: Sequence[str] = ()
    seeds: str | None = None
    data_folder: str | None = None
    origin: Path | None = None

    @property
    def has_settings(self) -> bool:
        """Whether `--set` changes the study. The folder of the data is not part of the study."""
        names = {text.partition("=")[0].strip() for text in self.overrides}
        return bool(names - {"data.folder"})


def select_rows(rows: Sequence[Row], patterns: Sequence[str]) -> tuple[Row, ...]:
    """Select the rows that match `--rows`, with their bases. The first base is always selected.

    Raises:
        UsageError: no row or group matches a pattern.
    """
    if not patterns:
        return tuple(rows)
    labels = {rows[0].label}
    for pattern in _patterns(patterns):
        for row in _matching_rows(rows, pattern):
            labels |= {row.label, row.base}
    return tuple(row for row in rows if row.label in labels)


def select_seeds(seeds: Seeds, text: str | None, n_rows: int) -> Seeds:
    """Select the seeds of `--seeds`; all seeds of the study without the option.

    Raises:
        UsageError: the list is invalid, has a seed of the tuning runs, or makes too many runs.
    """
    selected = seeds
    if text is not None:
        selected = replace(seeds, rows=_parse_seeds(text), further=())
        shared = sorted(set(selected.rows) & set(seeds.tuning))
        if shared:
            raise wrong_option("--seeds", f"{shared[0]} is a seed of `tune`; choose others")
    runs = n_rows * len(selected.rows)
    if runs > MAX_RUNS:
        limit = f"a study can have at most {MAX_RUNS:,}"
        raise wrong_option("--seeds", f"makes {runs:,} runs; {limit}")
    return selected


def notes_on_seeds(text: str | None) -> Iterator[str]:
    """Yield a note on `--seeds 3`, which the user may have meant as a number of seeds."""
    if text is not None and text.strip().isdecimal() and 1 < int(text) <= MAX_SEEDS:
        number = int(text)
        yield f"--seeds {number} is one seed, number {number}; --seeds 1-{number} is {number} seeds"


def _patterns(texts: Sequence[str]) -> list[str]:
    patterns = list(filter(None, map(str.strip, ",".join(texts).split(","))))
    if not patterns:  # such as an unset variable of a script, which must not select only base
        raise wrong_option("--rows", "names no row; leave it out for all rows, or name base")
    return patterns


def find_row(runs: Runs, name: str) -> Row:
    """Find the row with this label, or the only row that matches a group's name or a pattern.

    Raises:
        UsageError: no row or several rows match.
    """
    rows = runs.rows
    matches = [row for row in rows if row.label == name] or _matches(rows, name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        labels = tuple(row.label for row in matches)
        remedy = f"choose one: {first_few(labels, 24)}"
        problem = f"matches {len(matches)} rows"
        raise wrong_option("ROW", Fault(problem, given=f'"{name}"', remedy=remedy, choices=labels))
    raise wrong_option("ROW", unknown_name("row", name, _names_of_rows(rows)))


def _matches(rows: Sequence[Row], pattern: str) -> list[Row]:
    """The rows whose label, group or size equals a pattern, or whose label matches its * and ?.
    Labels and groups also match without their size.
    """
    return [row for row in rows if pattern in _names(row) or fnmatchcase(row.label, pattern)]


def _matching_rows(rows: Sequence[Row], pattern: str) -> list[Row]:
    matches = _matches(rows, pattern)
    if not matches:
        raise wrong_option("--rows", unknown_name("row or group", pattern, _names_of_rows(rows)))
    return matches


def _names_of_rows(rows: Sequence[Row]) -> Iterable[str]:
    """The groups, and then the labels, each once."""
    return dict.fromkeys([row.group for row in rows] + [row.label for row in rows])


def _names(row: Row) -> set[str]:
    names = {row.label, row.group, row.name, row.group.removeprefix(f"{row.size} "), row.size}
    return names - {""}


def _parse_seeds(text: str) -> tuple[int, ...]:
    """Parse a list of seeds and ranges, such as `1,2,5-8`; duplicates are dropped."""
    seeds: list[int] = []
    for part in text.split(","):
        written = _RANGE.fullmatch(part.strip())
        if not written:
            allowed = "a list of seeds, such as 1,2,3 or 1-3"
            raise wrong_option("--seeds", not_allowed(f'"{text}"', allowed))
        low, high = int(written[1]), int(written[2] or written[1])
        if high >= 2**32 or high < low or high - low >= MAX_SEEDS:
            allowed = f"FIRST-LAST, such as 1-3: at most {MAX_SEEDS} seeds from 0 to {2**32 - 1}"
            raise wrong_option("--seeds", not_allowed(f'"{part.strip()}"', allowed))
        seeds += range(low, high + 1)
        if len(seeds) > MAX_SEEDS:
            raise wrong_option("--seeds", f"more than {MAX_SEEDS} seeds")
    return tuple(dict.fromkeys(seeds))
