"""Apply the command line's `--rows` and `--seeds` to a study, and find a row by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ablate.errors import Fault, Mark, UsageError, did_you_mean
from ablate.stats.power import MAX_SEEDS
from ablate.study.runs import Row
from ablate.study.study import Study

MAX_RUNS = 100_000
_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")


@dataclass(frozen=True)
class Selection:
    """The options that change or select a study, as given: `--set`, `--rows` and `--seeds`.

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
    rows, seeds, further = study.rows, study.seeds, study.further_seeds
    if selection.rows:
        labels = {study.base.label}
        for pattern in _patterns(selection.rows):
            for row in _matching_rows(study, pattern):
                labels |= {row.label, row.base}
        rows = tuple(row for row in rows if row.label in labels)
    if selection.seeds is not None:
        if study.source.fixed_seeds:
            raise _wrong("--seeds", study.source.fixed_seeds)
        seeds, further = _parse_seeds(selection.seeds), ()
        shared = sorted(set(seeds) & set(study.trial_seeds))
        if shared:
            raise _wrong("--seeds", f"{shared[0]} is a seed of `tune`; choose others")
    runs = len(rows) * len(seeds)
    if runs > MAX_RUNS:
        at_most = f"a study can have at most {MAX_RUNS:,}"
        raise _wrong("--seeds", f"makes {runs:,} runs; {at_most}")
    # A selection of all that there is changes nothing.
    is_modified = (rows, seeds, further) != (study.rows, study.seeds, study.further_seeds)
    for text in selection.overrides:
        # data.folder is where the files are, so it does not change the study.
        is_modified |= text.partition("=")[0].strip() != "data.folder"
    notes = (*study.source.notes, *_note_on_seeds(selection.seeds, study))
    source = replace(study.source, notes=notes, is_modified=is_modified)
    return replace(study, rows=rows, seeds=seeds, further_seeds=further, source=source)


def _note_on_seeds(text: str | None, study: Study) -> Iterator[str]:
    """A note on `--seeds 3`, which may be meant as a number of seeds."""
    if text is not None and text.strip().isdecimal() and 1 < int(text) <= MAX_SEEDS:
        number = int(text)
        yield f"--seeds {number} is one seed, number {number}; --seeds 1-{number} is {number} seeds"


def _wrong(option: str, message: str) -> UsageError:
    return UsageError(Fault(message, place=Mark(option)))


def _patterns(texts: Sequence[str]) -> list[str]:
    patterns = list(filter(None, map(str.strip, ",".join(texts).split(","))))
    if not patterns:  # such as an unset variable of a script, which is not to mean base alone
        raise _wrong("--rows", "names no row; leave it out for all rows, or name base")
    return patterns


def find_row(study: Study, name: str) -> Row:
    """Return the row with this label, or the only row that a group's name or a pattern matches.

    Raises:
        UsageError: no row or several rows match.
    """
    matches = [row for row in study.rows if row.label == name] or _matches(study, name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        several = ", ".join(f'"{row.label}"' for row in matches)
        what = f'"{name}" matches {len(matches)} rows of study "{study.name}"'
        raise UsageError(f"{what}; choose one: {several}")
    labels, groups = _labels_and_groups(study)
    nearest = did_you_mean(name, [*labels, *groups]) or f"; rows: {', '.join(labels)}"
    raise UsageError(f'study "{study.name}" has no row "{name}"{nearest}')


def _matches(study: Study, pattern: str) -> list[Row]:
    """Rows by label, group, size, or a pattern with * and ?; labels also without the size."""
    rows = study.rows
    return [row for row in rows if pattern in _names(row) or fnmatchcase(row.label, pattern)]


def _matching_rows(study: Study, pattern: str) -> list[Row]:
    matches = _matches(study, pattern)
    if not matches:
        labels, groups = _labels_and_groups(study)
        nearest = did_you_mean(pattern, [*groups, *labels]) or f"; groups: {', '.join(groups)}"
        what = f'study "{study.name}" has no row or group "{pattern}"'
        raise _wrong("--rows", f"{what}{nearest}")
    return matches


def _labels_and_groups(study: Study) -> tuple[list[str], list[str]]:
    labels = [row.label for row in study.rows]
    return labels, list(dict.fromkeys(row.group for row in study.rows))


def _names(row: Row) -> set[str]:
    names = {row.label, row.group, row.name, row.group.removeprefix(f"{row.size} "), row.size}
    return names - {""}


def _parse_seeds(text: str) -> tuple[int, ...]:
    """Parse a list of seeds and ranges, such as `1,2,5-8`; duplicates are dropped."""
    seeds: list[int] = []
    for part in text.split(","):
        written = _RANGE.fullmatch(part.strip())
        if not written:
            raise _wrong("--seeds", f'"{text}" is not a list of seeds, such as 1,2,3 or 1-3')
        low, high = int(written[1]), int(written[2] or written[1])
        if high >= 2**32 or high < low or high - low >= MAX_SEEDS:
            allowed = f"seeds are 0 to {2**32 - 1}, at most {MAX_SEEDS} of them"
            what = f'"{part.strip()}" is not a valid range of seeds'
            raise _wrong("--seeds", f"{what}; {allowed}")
        seeds += range(low, high + 1)
        if len(seeds) > MAX_SEEDS:
            raise _wrong("--seeds", f"more than {MAX_SEEDS} seeds")
    return tuple(dict.fromkeys(seeds))
