"""Expand the groups of a study into rows: `each`, `zip` and `grid` over lists of values, `set` for
a single row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ablate.config import field_names, standard_name
from ablate.config.resolve import SYMBOLS
from ablate.errors import listed, unknown_name
from ablate.formatting import setting_text
from ablate.study.designs import DESIGNS, FRACTIONS, Design, expand_design
from ablate.study.expressions import Expression
from ablate.study.matching import Match, read_match
from ablate.study.settings import Settings, is_value, known_fields
from ablate.study.yaml_nodes import Mark, Node, Report

MAX_ROWS = 10_000


T = TypeVar("T")
OPTIONS = (
    "label",
    "require",
    "where",
    "match",
    "tune",
)  # keys of a group beside the way it makes rows
MAX_LABEL = 60  # characters
_RESERVED = '*?[],"|<>'  # patterns and lists of rows on the command line; Markdown


@dataclass(frozen=True)
class Option(Generic[T]):
    """A key of a group that replaces the study's; `value` is None where the group writes
    `false`.
    """

    value: T | None


@dataclass(frozen=True)
class RowSpec:
    """A row before it is resolved: the settings that the study writes for it, its conditions, and
    its options.

    match: None for the study's.
    is_tuned: False if the group writes `tune: false`.
    title: behind the group's name, in a design; empty for the settings as written.
    design: that the row belongs to.
    written_label: the study's `label` for the row; None for a label of group and settings.
    """

    group: str
    mark: Mark
    settings: Settings
    require: Expression | None
    where: Expression | None
    match: Option[Match] | None = None
    is_tuned: bool = True
    title: str = ""
    design: Design | None = None
    written_label: Node | None = None

    @property
    def label(self) -> str:
        """Stable name of the row: its group and its settings as written, such as `A h=1
        d_k=512`.
        """
        if self.written_label is not None:
            return str(self.written_label.value)
        if self.title:
            return f"{self.group} {self.title}"
        settings = (
            f"{name}={setting_text(node.to_python(), unset='null')}"
            for name, node in self.settings.items()
        )
        return " ".join([self.group, *settings])


def expand_group(group: str, node: Node, report: Report, max_rows: int) -> list[RowSpec]:
    """Expand one group into its rows.

    Args:
        group: name of the group.
        node: a mapping with one of `each`, `zip`, `grid`, `set` and the designs, or a list of such
            mappings.
        report: called with the position and the message of each error; the rows at fault are left
            out.
        max_rows: the most rows that the group may have.
    """
    mappings = node.value if isinstance(node.value, list) else [node]
    rows: list[RowSpec] = []
    for mapping in mappings:
        rows += _expand_mapping(group, mapping, report, max_rows - len(rows))
    return rows


def _expand_mapping(group: str, mapping: Node, report: Report, max_rows: int) -> list[RowSpec]:
    if not isinstance(mapping.value, dict):
        report(mapping.mark, f"expected a mapping with {listed(WAYS)}; got {mapping.kind}")
        return []
    way = _way_of(mapping, report)
    if way is None:
        return []
    require, where = (_condition(mapping, name, report) for name in ("require", "where"))
    match = (
        Option(read_match(mapping.value["match"][1], report)) if "match" in mapping.value else None
    )
    is_tuned, label = _is_tuned(mapping, report), _label(way, mapping, report)
    if way in DESIGNS:
        cells, design = expand_design(group, way, mapping, report, max_rows)
        return [
            RowSpec(
                group, cell.mark, cell.settings, require, where, match, is_tuned, cell.title, design
            )
            for cell in cells
        ]
    return [
        RowSpec(
            group,
            next(iter(settings.values())).mark,
            settings,
            require,
            where,
            match,
            is_tuned,
            written_label=label,
        )
        for settings in _expand_fields(way, mapping.value[way][1], report, max_rows)
    ]


def _way_of(mapping: Node, report: Report) -> str | None:
    """The one key of a group that says how it makes rows; None after an error. Unknown keys are
    reported.
    """
    ways: list[str] = [key for key in mapping.value if key in WAYS]
    options = (*OPTIONS, *(FRACTIONS if any(way in DESIGNS for way in ways) else ()))
    unknown = [(key, mark) for key, mark, _ in mapping.items() if key not in (*WAYS, *options)]
    for key, mark in unknown:
        if standard_name(key) is not None:
            report(
                mark,
                f'"{key}" is a field; write set: {{{key}: VALUE}}, or each: '
                f"{{{key}: [VALUE, VALUE]}}",
            )
        else:
            report(mark, unknown_name("key", key, (*WAYS, *options)))
    if unknown and not ways:
        return None  # the unknown key is most likely the misspelt one
    if len(ways) != 1:
        report(
            mapping.mark,
            f"a group needs exactly one of the keys {listed(WAYS)}; got {len(ways) or 'none'}",
        )
        return None
    return ways[0]


def _expand_fields(way: str, fields: Node, report: Report, max_rows: int) -> Iterable[Settings]:
    """The settings of each row that `each`, `zip`, `grid` or `set` makes; none after an error."""
    if not isinstance(fields.value, dict) or not fields.value:
        report(fields.mark, f'expected a mapping of fields under "{way}"; got {fields.kind}')
        return []
    known = known_fields(fields, report)
    valid = {key: node for key, node in known.items() if _has_valid_values(way, key, node, report)}
    if not valid or (way == "zip" and not _has_equal_lengths(valid, fields.mark, report)):
        return []
    count_rows, expand = _WAYS[way]
    count = count_rows(
        [len(node.value) if isinstance(node.value, list) else 1 for node in valid.values()]
    )
    if count > max_rows:  # counted before any row is made, since a grid can be astronomically large
        report(fields.mark, f"makes {count:,} rows; a study can have at most {MAX_ROWS:,}")
        return []
    return expand(valid)


def _each(fields: Settings) -> Iterator[Settings]:
    return ({name: value} for name, node in fields.items() for value in node.value)


def _zip(fields: Settings) -> Iterator[Settings]:
    combinations = zip(*(node.value for node in fields.values()), strict=True)
    return (dict(zip(fields, values, strict=True)) for values in combinations)


def _grid(fields: Settings) -> Iterator[Settings]:
    combinations = itertools.product(*(node.value for node in fields.values()))
    return (dict(zip(fields, values, strict=True)) for values in combinations)


def _set(fields: Settings) -> Iterator[Settings]:
    return iter([fields])


# Key in a group -> (number of rows from the lengths of the lists, function that makes the rows).
_WAYS: dict[str, tuple[Callable[[list[int]], int], Callable[[Settings], Iterator[Settings]]]] = {
    "each": (sum, _each),
    "zip": (lambda lengths: lengths[0], _zip),
    "grid": (math.prod, _grid),
    "set": (lambda _: 1, _set),
}
WAYS = (*_WAYS, *DESIGNS)


def _has_valid_values(way: str, key: str, node: Node, report: Report) -> bool:
    """Whether the field has one value under `set`, and a list of them under `each`, `zip` and
    `grid`.
    """
    if way == "set":
        return is_value(key, node, report)
    if not isinstance(node.value, list) or not node.value:
        report(node.mark, f'"{key}" needs a list of values under "{way}"; got {node.kind}')
        return False
    # A list, and not a generator, so that every value at fault is reported.
    return all([is_value(key, value, report) for value in node.value])  # noqa: C419


def _has_equal_lengths(fields: Settings, mark: Mark, report: Report) -> bool:
    lengths = {key: len(node.value) for key, node in fields.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{key} has {count}" for key, count in lengths.items())
        report(mark, f'lists under "zip" must have equal lengths: {counts}')
        return False
    return True


def _is_tuned(mapping: Node, report: Report) -> bool:
    """Whether the rows of a group are tuned, if the study says so: unless it writes `tune:
    false`.
    """
    if "tune" not in mapping.value:
        return True
    node = mapping.value["tune"][1]
    if node.value is not False:
        report(
            node.mark,
            f"tune of a group can only be false; the section `tune` of the study has the grid; got "
            f"{node.kind}",
        )
    return False


def _label(way: str, mapping: Node, report: Report) -> Node | None:
    """The label that a group writes for its row; None without one, and after an error."""
    if "label" not in mapping.value:
        return None
    node: Node = mapping.value["label"][1]
    label = node.value
    if way != "set":
        report(node.mark, f'label is the name of one row, so it is a key beside "set"; got "{way}"')
    elif not isinstance(label, str):
        report(node.mark, f'label must be text, such as label: "2 layers"; got {node.kind}')
    elif not 0 < len(label) <= MAX_LABEL or label != label.strip() or not label.isprintable():
        needs = f"must have 1 to {MAX_LABEL} printable characters, and no space at its ends"
        report(node.mark, f'label "{label[:MAX_LABEL]}" {needs}')
    elif any(character in _RESERVED for character in label):
        report(node.mark, f'label "{label}" must have none of {" ".join(_RESERVED)}')
    else:
        return node
    return None


def _condition(mapping: Node, name: str, report: Report) -> Expression | None:
    """Parse the condition `require` or `where` of a group; None without one, and after an error."""
    if name not in mapping.value:
        return None
    node = mapping.value[name][1]
    try:
        condition = Expression(str(node.value) if not isinstance(node.value, (dict, list)) else "")
        condition.check_names((*field_names(), *SYMBOLS))
        return condition
    except ValueError as error:
        report(node.mark, f"{name}: {error}")
        return None
