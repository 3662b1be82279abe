"""The three ways to make rows, and `set` for a single one: from a group's node to written settings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ablate.config import PRESETS, canonical, field_names
from ablate.config.resolve import SYMBOLS
from ablate.errors import did_you_mean, listed
from ablate.formatting import setting_text
from ablate.study.expressions import Expression
from ablate.study.yaml_nodes import Mark, Node

MAX_ROWS = 10_000

Report = Callable[[Mark, str], None]
Written = dict[str, Node]  # a field as the study writes it -> its value


@dataclass(frozen=True)
class Draft:
    """A row as written, not yet resolved: what it sets, and the conditions on it."""

    group: str
    mark: Mark
    written: Written
    require: Expression | None
    where: Expression | None

    @property
    def label(self) -> str:
        """The row's stable name: its group and what it sets, as written."""
        return " ".join(
            [self.group, *(f"{name}={setting_text(node.value, unset='null')}" for name, node in self.written.items())]
        )


def drafts(group: str, node: Node, report: Report, budget: int) -> list[Draft]:
    """The rows of one group: a mapping, or a list of them; `budget` is how many the study may still have."""
    specs = node.value if isinstance(node.value, list) else [node]
    result: list[Draft] = []
    for spec in specs:
        result += _drafts_of(group, spec, report, budget - len(result))
    return result


def _drafts_of(group: str, spec: Node, report: Report, budget: int) -> list[Draft]:
    if not isinstance(spec.value, dict):
        report(spec.mark, f"{spec.kind}, where rows are made with {listed(_WAYS)}")
        return []
    ways = [key for key in spec.value if key in _WAYS]
    for key, mark, _ in spec.items():
        if key not in (*_WAYS, "require", "where"):
            report(mark, unknown("key", key, (*_WAYS, "require", "where")))
    if len(ways) != 1:
        report(spec.mark, f"rows are made with one of {listed(_WAYS)}; here are {len(ways)}")
        return []
    require, where = (_expression(spec, name, report) for name in ("require", "where"))
    fields = spec.value[ways[0]][1]
    if not isinstance(fields.value, dict) or not fields.value:
        report(fields.mark, f"{fields.kind}, where fields and their values belong")
        return []
    good = known_fields(fields, report)
    good = {key: node for key, node in good.items() if _values_fit(ways[0], key, node, report)}
    if not good or not _lengths_fit(ways[0], good, fields.mark, report):
        return []
    sizes, expand = _WAYS[ways[0]]
    count = sizes([len(node.value) if isinstance(node.value, list) else 1 for node in good.values()])
    if count > budget:
        report(fields.mark, f"makes {count:,} rows; a study has at most {MAX_ROWS:,}")
        return []
    return [Draft(group, _place(written, fields), written, require, where) for written in expand(good)]


def _place(written: Written, fields: Node) -> Mark:
    """Where a fault of the row is pointed to: its first value."""
    return next(iter(written.values())).mark if written else fields.mark


def _each(fields: Written) -> Iterator[Written]:
    return ({name: value} for name, node in fields.items() for value in node.value)


def _zip(fields: Written) -> Iterator[Written]:
    tuples = zip(*(node.value for node in fields.values()), strict=True)
    return (dict(zip(fields, values, strict=True)) for values in tuples)


def _grid(fields: Written) -> Iterator[Written]:
    tuples = itertools.product(*(node.value for node in fields.values()))
    return (dict(zip(fields, values, strict=True)) for values in tuples)


def _set(fields: Written) -> Iterator[Written]:
    return iter([fields])


# The way -> (how many rows lists of these lengths make, the rows).
_WAYS: dict[str, tuple[Callable[[list[int]], int], Callable[[Written], Iterator[Written]]]] = {
    "each": (sum, _each),
    "zip": (lambda lengths: lengths[0], _zip),
    "grid": (math.prod, _grid),
    "set": (lambda _: 1, _set),
}


def known_fields(fields: Node, report: Report) -> Written:
    """The fields that exist, as written; others are reported, as are a name and its symbol together."""
    seen: dict[str, str] = {}
    for key, mark, _ in fields.items():
        name = "preset" if key == "preset" else canonical(key)
        if name is None:
            report(mark, unknown("field", key, (*field_names(), *SYMBOLS, "preset")))
        elif name in seen:
            report(mark, f'"{key}" and "{seen[name]}" are the same field')
        else:
            seen[name] = key
    return {key: fields.value[key][1] for key in seen.values()}


def single_value(key: str, node: Node, report: Report) -> bool:
    """Whether the value is a single one, and a preset a known one; reported if not."""
    if isinstance(node.value, (dict, list)):
        report(node.mark, f'"{key}" takes a single value; here is {node.kind}')
        return False
    if key == "preset" and node.value not in PRESETS:
        report(node.mark, unknown("preset", str(node.value), PRESETS))
        return False
    return True


def _values_fit(way: str, key: str, node: Node, report: Report) -> bool:
    """Whether the field has a list of single values (each, zip, grid), or one (set)."""
    if way == "set":
        return single_value(key, node, report)
    if not isinstance(node.value, list) or not node.value:
        report(node.mark, f'"{key}" needs a list of values under "{way}"; here is {node.kind}')
        return False
    return all([single_value(key, value, report) for value in node.value])  # noqa: C419 - report every one


def _lengths_fit(way: str, fields: Written, mark: Mark, report: Report) -> bool:
    lengths = {key: len(node.value) for key, node in fields.items() if way == "zip"}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{key} has {count}" for key, count in lengths.items())
        report(mark, f"the lists under zip must be equally long: {counts}")
        return False
    return True


def _expression(spec: Node, name: str, report: Report) -> Expression | None:
    if name not in spec.value:
        return None
    node = spec.value[name][1]
    try:
        condition = Expression(str(node.value) if not isinstance(node.value, (dict, list)) else "")
        condition.check((*field_names(), *SYMBOLS))
        return condition
    except ValueError as error:
        report(node.mark, f"{name}: {error}")
        return None


def unknown(what: str, given: str, allowed: Iterable[str]) -> str:
    """`unknown field "drop_out"; did you mean "dropout"?`, or what is allowed where nothing is near."""
    allowed = tuple(allowed)
    near = did_you_mean(given, allowed)
    return f'unknown {what} "{given[:60]}"{near or "; allowed: " + ", ".join(allowed)}'
