"""Numbers at the end of the names of rows, as in `adam-42`, `adam_s1` and `layers-6`: seeds of the
runs of a row, or a part of its name.

Names are rows. Only a file that could not be judged in this way has its numbers read as seeds, and
only if nothing else is plausible: each number is the seed of its line; or the names without their
numbers include base, and all of them have the same consecutive numbers. In doubt, the file is
refused with a proposal.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ablate.errors import Fault, UsageError, unknown_name
from ablate.formatting import first_few
from ablate.judging.columns import BASES, SEED, Line, SourceTable, parse_number

_SEED_IN_NAME = re.compile(r"[\s._/-]*seed[\s._=/-]*(\d+)", re.I)
_SEED_WORDS = ("", "s")  # words before a number that may be a seed without a column of seeds
_NUMBERED = re.compile(
    r"(.*?)[\s._/:#@(\[-]+(s|r|run|rep|repeat|replicate|trial|try|fold)?(\d{1,9})[)\]]?", re.I
)
# Last words of names, also as plurals, whose numbers may be the value of a setting, or count rows.
_SETTINGS = {
    "alpha", "batch", "beam", "beta", "bit", "bs", "clip", "context", "ctx", "decay", "depth",
    "dff", "dim", "dmodel", "drop", "dropout", "epoch", "eps", "expert", "ff", "ffn", "gamma",
    "group", "head", "hidden", "iter", "kernel", "layer", "len", "length", "level", "lr", "model",
    "momentum", "order", "param", "patch", "patience", "period", "queries", "rank", "rate", "ratio",
    "scale", "seq", "size", "smoothing", "split", "stage", "step", "stride", "temp", "temperature",
    "token", "top", "topk", "topp", "vocab", "warmup", "wd", "width", "window", "attempt",
    "candidate", "cfg", "config", "exp", "experiment", "fold", "job", "proposal", "rep", "row",
    "run", "task", "trial", "try", "variant", "ver", "version",
}  # fmt: skip


def seed_in_name(name: str) -> str:
    """The digits of the seed in a name such as `adam_seed42`; empty without the word `seed`."""
    match = _SEED_IN_NAME.search(name)
    return match[1] if match else ""


def without_seed(name: str) -> str:
    """The name without its seed."""
    return _SEED_IN_NAME.sub("", name, count=1) or name


class _Name(NamedTuple):
    """A name that ends in a number.

    row: the name without the number.
    word: word between the two, such as `s`; empty without one.
    """

    row: str
    word: str
    number: int

    @property
    def may_be_setting(self) -> bool:
        """Whether the number may be the value of a setting, or count rows: after a word of
        `_SETTINGS`, also in `numlayers`, and after a single letter, such as `h`.
        """
        if self.word:  # which says what the number is
            return False
        last = re.split(r"[\W_]+", self.row.lower())[-1]
        if len(last) == 1 and last.isalpha():
            return True
        for word in (last, last.removesuffix("s")):
            if any(word == name or (len(name) > 3 and word.endswith(name)) for name in _SETTINGS):
                return True
        return False


def _split(name: str) -> _Name | None:
    """The parts of a name that ends in a number; None for other names, as `3e-4` and `v1.2`."""
    match = _NUMBERED.fullmatch(name)
    if match is None or seed_in_name(name) or parse_number(name) is not None:
        return None
    row, word, number = match.groups("")
    has_letter = re.search(r"[^\W\d_]", row)
    is_fraction = name[len(row)] == "." and row[-1:].isdigit()
    if not has_letter or is_fraction or re.search(r"\d\.?e$|[=<>,;+*]$", row, re.I):
        return None
    return _Name(row, word.lower(), int(number))


def shared_name(names: Iterable[str]) -> tuple[str, list[str]] | None:
    """A name without its number that several names share, such as `adam`, and these names."""
    sharing: dict[str, list[str]] = {}
    for name in names:
        parts = _split(name)
        if parts is not None and not parts.may_be_setting:
            sharing.setdefault(parts.row, []).append(name)
    for row, same in sharing.items():
        if len(same) > 1:
            return row, same
    return None


def runs_of_a_row(row: str, names: Sequence[str]) -> str:
    """What to do if names are runs of a row."""
    quoted = [f'"{name}"' for name in names]
    return (
        f"if {first_few(quoted, 3)} are runs of one row, write {row} in the column row of each, "
        "and its seed in a column seed"
    )


def with_named_seeds(lines: Sequence[Line], table: SourceTable, base: str | None) -> list[Line]:
    """The lines with names such as `adam seed 42` in the place of `adam-42` if the numbers are
    seeds. A note tells it.

    Args:
        lines: the lines, with the names of their rows.
        table: the table of the lines.
        base: requested label of base; None for the only label in BASES.

    Raises:
        UsageError: no row is base, and the numbers may be seeds.
    """
    of_rows = [line for line in lines if line.row]
    parts: dict[str, _Name] = {}
    for name in dict.fromkeys(line.row for line in of_rows):
        split = _split(name)
        if split is None or len(table.row_columns) > 1:
            return list(lines)
        parts[name] = split
    numbers: dict[str, set[int]] = {}  # by row
    for part in parts.values():
        numbers.setdefault(part.row, set()).add(part.number)
    has_several = len(numbers) > 1 and max(map(len, numbers.values())) > 1
    if not has_several or any(part.may_be_setting for part in parts.values()):
        return list(lines)
    column = table.first_filled(of_rows, SEED)
    if column is not None:
        are_seeds = all(_is_seed(parts[line.row], line.text(column)) for line in of_rows)
    elif base in parts or _has_runs(of_rows):
        are_seeds = False
    else:
        are_seeds = _are_seeds(base, parts, numbers)
    if not are_seeds:
        return list(lines)
    counts = sorted({len(seeds) for seeds in numbers.values()})
    each = f"{counts[0]} seeds each" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    table.notes.append(
        f"Read {len(parts)} names as {len(numbers)} rows with {each}: the number in "
        f'"{next(iter(parts))}" is the seed.'
    )
    renamed = []
    for line in lines:
        if line.row:
            part = parts[line.row]
            seed = {} if column is None else {column: str(part.number)}
            row = f"{part.row} seed {part.number}"
            line = line._replace(row=row, cells={**line.cells, **seed})
        renamed.append(line)
    return renamed


def _is_seed(part: _Name, seed: str) -> bool:
    """Whether the number in a name is the seed of its line, which may be written as `s1`."""
    match = re.fullmatch(r"[^\W\d_]*0*(\d+)(\.0)?", seed)
    return match is not None and int(match[1]) == part.number


def _has_runs(lines: Iterable[Line]) -> bool:
    """Whether a name has several runs, so that its number is no seed."""
    seen = set[tuple[str, ...]]()
    for line in lines:
        key = (line.row, *map(line.text, ("metric", "item", "resample")))
        if key in seen:
            return True
        seen.add(key)
    return False


def _are_seeds(
    base: str | None, parts: Mapping[str, _Name], numbers: Mapping[str, set[int]]
) -> bool:
    """Whether the numbers in names are seeds, without a column of seeds.

    Raises:
        UsageError: no row is base, and the numbers may be seeds.
    """
    have_seed_words = all(part.word in _SEED_WORDS for part in parts.values())
    are_plausible = have_seed_words and _are_consecutive(numbers.values())
    bases = [row for row in numbers if row.lower() in BASES]
    if base is not None:
        if are_plausible and base not in numbers:
            raise UsageError(unknown_name("row", base, numbers))
        return are_plausible
    # Without a word, as in `base-1`, the user must say that `base` is a row.
    if are_plausible and len(bases) == 1 and all(part.word for part in parts.values()):
        return True
    row = bases[0] if bases else next(iter(numbers))
    names = [name for name, part in parts.items() if part.row == row]
    if are_plausible:
        remedy = (
            f'give --base {shlex.quote(row)} (base="{row}" in Python) if the number in '
            f'"{names[0]}" is a seed, or else a whole name'
        )
    else:
        remedy = f"{runs_of_a_row(row, names)}; else give --base ROW (base=ROW in Python)"
    remedy = f"{remedy}; found {first_few(list(parts), 12)}"
    raise UsageError(Fault("which row is base?", remedy=remedy, choices=tuple(parts)))


def _are_consecutive(numbers: Collection[set[int]]) -> bool:
    """Whether all rows have the same consecutive numbers, as 1, 2, 3 or 42, 43."""
    first, *others = numbers
    return all(seeds == first for seeds in others) and max(first) - min(first) == len(first) - 1
