"""Apply the command line's `--rows` and `--seeds` to a study, and find a row by its label, group or
pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ablate.config.training import MAX_SEEDS
from ablate.errors import UsageError, did_you_mean
from ablate.study.study import Row, Study
from ablate.study.yaml_nodes import Mark

MAX_RUNS = 100_000


@dataclass(frozen=True)
class Selection:
    """The options that change a study or select a part of it: `--set`, `--rows` and `--seeds`, as
    given.

    data_folder: replaces `data.folder`; for a program that knows the folder. It is used as it is,
        and never parsed as a text of the user's is.
    """

    overrides: Sequence[str] = ()
    rows: Sequence[str] = ()
    seeds: str | None = None
    data_folder: str | None = None


def select(study: Study, selection: Selection) -> Study:
    """Return the study with the selected rows and seeds; base is always kept.

    Raises:
        UsageError: an unknown row or group, an invalid list of seeds, or too many runs.
    """
    rows, seeds = study.rows, study.seeds
    if selection.rows:
        patterns = [
            part.strip() for text in selection.rows for part in text.split(",") if part.strip()
        ]
        if not patterns:  # such as an unset variable of a script, which is not to mean base alone
            raise UsageError(
                Mark("--rows").error_line("names no row; leave it out for all rows, or name base")
            )
        labels = {row.label for pattern in patterns for row in _matching_rows(study, pattern)}
        labels |= {study.base.label, *(row.base for row in rows if row.label in labels)}
        rows = tuple(row for row in rows if row.label in labels)
    if selection.seeds is not None and study.looks is not None:
        raise UsageError(
            Mark("--seeds").error_line(
                f"{study.looks.node('looks').mark}: the study is judged at looks, which determine "
                f"its seeds; remove --seeds"
            )
        )
    if selection.seeds is not None:
        seeds = _parse_seeds(selection.seeds)
        shared = sorted(set(seeds) & set(study.tune.seeds if study.tune else ()))
        if shared:
            raise UsageError(
                Mark("--seeds").error_line(f"{shared[0]} is a seed of `tune`; choose others")
            )
    runs = len(rows) * len(seeds)
    if runs > MAX_RUNS:
        raise UsageError(
            Mark("--seeds").error_line(
                f"makes {runs:,} runs; a study can have at most {MAX_RUNS:,}"
            )
        )
    # data.folder is where the files are, so it does not change the study.
    changes = [
        text for text in selection.overrides if text.partition("=")[0].strip() != "data.folder"
    ]
    return replace(
        study,
        rows=rows,
        seeds=seeds,
        is_modified=bool(changes or selection.rows or selection.seeds),
    )


def find_row(study: Study, name: str) -> Row:
    """Return the row with this label, or the only row that a group's name or a pattern matches.

    Raises:
        UsageError: no row or several rows match.
    """
    rows = study.rows
    matches = [row for row in rows if row.label == name]
    matches = matches or [
        row for row in rows if name in _names(row) or fnmatchcase(row.label, name)
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        labels = ", ".join(f'"{row.label}"' for row in matches)
        raise UsageError(
            f'"{name}" matches {len(matches)} rows of study "{study.name}"; choose one: {labels}'
        )
    nearest = (
        did_you_mean(name, [*(row.label for row in rows), *(row.group for row in rows)])
        or f"; rows: {', '.join(row.label for row in rows)}"
    )
    raise UsageError(f'study "{study.name}" has no row "{name}"{nearest}')


def _matching_rows(study: Study, pattern: str) -> list[Row]:
    """Rows by label, by group, or by a pattern with * and ?; at several sizes also by size, or
    without it.
    """
    rows = study.rows
    matches = [row for row in rows if pattern in _names(row) or fnmatchcase(row.label, pattern)]
    if not matches:
        groups = list(dict.fromkeys(row.group for row in rows))
        nearest = (
            did_you_mean(pattern, [*groups, *(row.label for row in rows)])
            or f"; groups: {', '.join(groups)}"
        )
        raise UsageError(
            Mark("--rows").error_line(
                f'study "{study.name}" has no row or group "{pattern}"{nearest}'
            )
        )
    return matches


def _names(row: Row) -> set[str]:
    names = {row.label, row.group, row.name, row.group.removeprefix(f"{row.size} ")}
    return names | ({row.size} if row.size else set())


def _parse_seeds(text: str) -> tuple[int, ...]:
    """Parse a list of seeds and ranges, such as `1,2,5-8`; duplicates are dropped."""
    mark = Mark("--seeds")
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if (
            not first.isdecimal()
            or (dash and not last.isdecimal())
            or len(first) > 10
            or len(last) > 10
        ):
            raise UsageError(
                mark.error_line(f'"{text}" is not a list of seeds, such as 1,2,3 or 1-3')
            )
        low, high = int(first), int(last or first)
        if high >= 2**32 or high < low or high - low >= MAX_SEEDS:
            allowed = f"seeds are 0 to {2**32 - 1}, at most {MAX_SEEDS} of them"
            raise UsageError(
                mark.error_line(f'"{part.strip()}" is not a valid range of seeds; {allowed}')
            )
        seeds += range(low, high + 1)
        if len(seeds) > MAX_SEEDS:
            raise UsageError(mark.error_line(f"more than {MAX_SEEDS} seeds"))
    return tuple(dict.fromkeys(seeds))
