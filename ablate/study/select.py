"""What the command line changes or picks of a study: --set, --rows and --seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ablate.errors import UsageError, did_you_mean
from ablate.study.study import Row, Study
from ablate.study.yaml_nodes import Mark

MAX_SEEDS = 1000
MAX_RUNS = 100_000


@dataclass(frozen=True)
class Selection:
    """What the command line changes or picks: --set, --rows and --seeds as they were given."""

    overrides: Sequence[str] = ()
    rows: Sequence[str] = ()
    seeds: str | None = None


def select(study: Study, selection: Selection) -> Study:
    """The study with the rows and seeds that were asked for; base stays in any case.

    Raises:
        UsageError: a row, a group or a seed that there is not.
    """
    rows, seeds = study.rows, study.seeds
    if selection.rows:
        wanted = [part.strip() for text in selection.rows for part in text.split(",") if part.strip()]
        picked = {row.label for pattern in wanted for row in _matching(study, pattern)}
        rows = tuple(row for row in rows if row.label in picked or row is study.base)
    if selection.seeds is not None:
        seeds = _seed_list(selection.seeds)
    if len(rows) * len(seeds) > MAX_RUNS:
        raise UsageError(Mark("--seeds").fault(f"{len(rows) * len(seeds):,} runs; a study has at most {MAX_RUNS:,}"))
    changes = [text for text in selection.overrides if text.partition("=")[0].strip() != "data.folder"]
    return replace(study, rows=rows, seeds=seeds, selected=bool(changes or selection.rows or selection.seeds))


def the_row(study: Study, name: str) -> Row:
    """The one row of that label, or that a pattern or a group's name means.

    Raises:
        UsageError: there is none, or several.
    """
    rows = study.rows
    found = [row for row in rows if row.label == name]
    found = found or [row for row in rows if row.group == name or fnmatchcase(row.label, name)]
    if len(found) == 1:
        return found[0]
    if found:
        labels = ", ".join(f'"{row.label}"' for row in found)
        raise UsageError(f'study "{study.name}" has {len(found)} rows "{name}"; name one: {labels}')
    near = (
        did_you_mean(name, [*(row.label for row in rows), *(row.group for row in rows)])
        or f"; rows: {', '.join(row.label for row in rows)}"
    )
    raise UsageError(f'study "{study.name}" has no row "{name}"{near}')


def _matching(study: Study, pattern: str) -> list[Row]:
    """Rows by label, by group, or by a pattern with * and ?."""
    found = [row for row in study.rows if pattern in (row.label, row.group) or fnmatchcase(row.label, pattern)]
    if not found:
        names = [*dict.fromkeys(row.group for row in study.rows), *(row.label for row in study.rows)]
        near = did_you_mean(pattern, names) or f"; groups: {', '.join(dict.fromkeys(r.group for r in study.rows))}"
        raise UsageError(Mark("--rows").fault(f'study "{study.name}" has no row or group "{pattern}"{near}'))
    return found


def _seed_list(text: str) -> tuple[int, ...]:
    """`1,2,5-8` as numbers."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first) > 10 or len(last) > 10:
            raise UsageError(Mark("--seeds").fault(f'"{text}" is not a list of seeds, such as 1,2,3 or 1-3'))
        low, high = int(first), int(last or first)
        if high >= 2**32 or high < low or high - low >= MAX_SEEDS:
            allowed = f"a range of seeds from 0 to {2**32 - 1}, at most {MAX_SEEDS}"
            raise UsageError(Mark("--seeds").fault(f'"{part.strip()}" is not {allowed}'))
        seeds += range(low, high + 1)
        if len(seeds) > MAX_SEEDS:
            raise UsageError(Mark("--seeds").fault(f"more than {MAX_SEEDS} seeds"))
    return tuple(dict.fromkeys(seeds))
