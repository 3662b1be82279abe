"""The section `rows`: groups, which make rows by `each`, `zip`, `grid` or `set`, or by a design."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from ablate.config import RowConfig
from ablate.config.resolve import SYMBOLS, standard_name
from ablate.errors import Fault, Invalid, Mark, listed
from ablate.fields import types_of
from ablate.formatting import setting_text
from ablate.stats.designs import PATHS, Design
from ablate.stats.factorial import Fraction
from ablate.study.designs import (
    DESIGNS,
    Added,
    Cumulated,
    Factors,
    LeftOut,
    Part,
    factorial,
    fraction_of,
    path,
)
from ablate.study.expressions import Expression
from ablate.study.matching import Match
from ablate.study.names import folded_name
from ablate.study.settings import Fields, Lists, Settings, one_required
from ablate.study.typed import KEY, Misplaced, Placed, union_by_kind
from ablate.study.yaml_nodes import Report

MAX_ROWS = 10_000
MAX_LABEL = 60  # characters
WAYS = ("each", "zip", "grid", "set", *DESIGNS)  # keys that make rows
# A label has no character with a meaning in patterns and lists of rows on the command line, or in
# Markdown.
_LABEL = r'^[^\s*?\[\],"|<>]([^*?\[\],"|<>]*[^\s*?\[\],"|<>])?$'


def _condition(value: Any) -> Expression:
    if isinstance(value, (dict, list)):
        value = ""  # is refused, since an empty text is not a condition
    condition = Expression(str(value))
    types = types_of(RowConfig)
    types = types | {symbol: types[name] for symbol, name in SYMBOLS.items()}
    condition.check_names(types)
    condition.check_types(types)
    return condition


Condition = Annotated[Any, PlainValidator(_condition), WithJsonSchema({"type": "string"})]


def _check_label(label: str) -> str:
    if len(label) > MAX_LABEL or not label.isprintable() or not re.match(_LABEL, label):
        characters = f'1 to {MAX_LABEL} printable characters, none of * ? [ ] , " | < >'
        rule = f"must have {characters}, and no space at its ends"
        raise Misplaced(f'label "{label[:MAX_LABEL]}" {rule}')
    return label


def _check_tune(value: Any) -> Any:
    if value is not False:
        raise Invalid("must be false in a group; the grid belongs in the section `tune`")
    return value


MatchOption = union_by_kind({"a mapping": Match, "false": Literal[False]})


class Group(Placed):
    """A group of rows as the study writes it: one key of WAYS, and options."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": one_required(WAYS),
            "dependencies": {"label": ["set"]},
        }
    )

    each: Lists = Field(Settings())
    """one factor at a time, each value against base"""
    zip: Lists = Field(Settings())
    """paired lists of equal length"""
    grid: Lists = Field(Settings())
    """every combination"""
    set: Fields = Field(Settings())
    """a single row"""
    factorial: Factors = Field([])
    """every combination of two levels of each field, analyzed for effects and interactions"""
    leave_one_out: LeftOut = Field([], alias="leave-one-out")
    """all parts changed, and all but one at a time"""
    add_one_in: Added = Field([], alias="add-one-in")
    """base with one part changed at a time, and with all of them"""
    cumulative: Cumulated = Field([])
    """base with one part more in each row, in the order written"""
    label: Annotated[
        str, AfterValidator(_check_label), WithJsonSchema({"type": "string", "pattern": _LABEL})
    ] = Field("", json_schema_extra={"maxLength": MAX_LABEL})
    """name of the row in tables and on the command line, in place of its group and settings"""
    require: Condition = None
    """a condition over the row's fields; a row that violates it is an error"""
    where: Condition = None
    """a condition over the row's fields; rows that violate it are dropped"""
    match: MatchOption = False  # type: ignore[valid-type]
    """replaces the study's `match`; false: rows of this group are not matched"""
    tune: Annotated[Literal[False], BeforeValidator(_check_tune)] = False
    """false: the rows have the values chosen for base, except for fields that they set"""
    resolution: int = Field(0, ge=3, le=5)
    """for a fractional factorial: use the smallest fraction with at least this resolution"""

    @classmethod
    def unknown_key(cls, key: str) -> Fault | str:
        """The fault of a key that a group does not have, such as a field."""
        if standard_name(key) is None:
            return super().unknown_key(key)
        remedy = f"write set: {{{key}: VALUE}}, or each: {{{key}: [VALUE, VALUE]}}"
        return Fault(f'"{key}" is a field', remedy=remedy)

    @property
    def written(self) -> tuple[str, ...]:
        """The keys that the study writes."""
        return tuple(self._node.value)

    @property
    def way(self) -> str:
        """The key by which the group makes rows."""
        return next(key for key in self.written if key in WAYS)

    @property
    def is_tuned(self) -> bool:
        """Whether the rows are tuned in a study with the section `tune`."""
        return "tune" not in self.written  # its only value is false

    @model_validator(mode="after")
    def _is_whole(self) -> Group:
        ways = [way for way in WAYS if way.replace("-", "_") in self.model_fields_set]
        if len(ways) != 1:
            rule = f"exactly one of the keys {listed(WAYS)}; got {', '.join(ways) or 'none'}"
            raise Misplaced(f"a group needs {rule}")
        faults = list(self._faults_of_way(ways[0]))
        if faults:
            raise Misplaced(*faults)
        return self

    def _faults_of_way(self, way: str) -> Iterator[Fault]:
        written = self.model_fields_set
        if way not in DESIGNS and not getattr(self, way):
            yield Fault(f"{way} needs at least one field", path=(way,))
        lengths = list(map(len, self.zip.lists()))
        if len(set(lengths)) > 1:
            counts = ", ".join(map("{} has {}".format, self.zip, lengths))
            yield Fault(f'lists under "zip" must have equal lengths: {counts}', path=("zip",))
        if way != "set" and "label" in written:
            message = f'label is the name of one row, so it is a key beside "set"; got "{way}"'
            yield Fault(message, path=("label",))
        if way in DESIGNS and "where" in written:
            problem = f"where would drop rows that {way} needs"
            yield Fault(problem, remedy="use require", path=("where", KEY))
        if way == "factorial":
            self.fraction()  # raises its faults
        elif "resolution" in written:
            yield Fault("resolution belongs to factorial", path=("resolution", KEY))

    def fraction(self) -> Fraction:
        """The fraction of a factorial group.

        Raises:
            Misplaced: no fraction has this `resolution`.
        """
        return fraction_of(self.factorial, self.resolution)


Groups = union_by_kind({"a mapping": Group, "a list": list[Group]})


@dataclass(frozen=True)
class RowSpec:
    """A row before it is resolved: the settings that the study writes for it.

    group: name of the group.
    options: the group, with options such as conditions.
    mark: position of the row in the file.
    settings: settings as written.
    title: part of the label after the group's name, for a row of a design; empty to show the
        settings there.
    design: design of the row; None outside of designs.
    """

    group: str
    options: Group
    mark: Mark
    settings: Settings
    title: str = ""
    design: Design | None = None

    @property
    def label(self) -> str:
        """Stable name of the row: the group and the settings as written, `A h=1 d_k=512`. A group
        whose name is part of a field's name is left out: `norm_position=post` in a group `norm`.
        """
        if self.options.label:
            return self.options.label
        if self.title:
            return f"{self.group} {self.title}"
        words = []
        for name, node in self.settings.items():
            words.append(f"{name}={setting_text(node.to_python(), unset='null')}")
        if not any(self.group in (name, *name.split("_")) for name in self.settings):
            words.insert(0, self.group)
        return " ".join(words)


# (key of WAYS, settings of the end of a path) -> the parts in which base and the end differ; empty
# after an error, which is reported.
PartsOfPath = Callable[[str, Settings], list[Part]]


def expand_groups(
    groups: Iterable[tuple[str, Group]], report: Report, parts_of_path: PartsOfPath, size: str
) -> list[RowSpec]:
    """Make the rows of all groups, in the order of the file. Errors are reported."""
    specs: list[RowSpec] = []
    for name, options in groups:
        specs += expand_group(name, options, report, MAX_ROWS - len(specs), parts_of_path, size)
    return _without_clashes(specs, report)


def _without_clashes(specs: Sequence[RowSpec], report: Report) -> list[RowSpec]:
    """Leave out rows whose `label` is the name of base, of another row or of another group. They
    are reported.
    """
    labels = Counter(folded_name(spec.label) for spec in specs)
    groups = Counter(folded_name(spec.group) for spec in specs)
    kept = []
    for spec in specs:
        name = folded_name(spec.label)
        rows_of_name = groups[name]  # rows of a group with this name
        if name == folded_name(spec.group):
            rows_of_name -= 1  # the only row of a group may have the name of the group
        kind = ""
        if name == "base":
            kind = "base"
        elif labels[name] > 1:
            kind = "another row"
        elif rows_of_name:
            kind = "a group with other rows"
        if not spec.options.label or not kind:
            kept.append(spec)
            continue
        mark = spec.options.node("label").mark
        problem = f'label "{spec.label}" is also the name of {kind}'
        report(mark, Fault(problem, remedy="choose another label"))
    return kept


def expand_group(
    group: str,
    options: Group,
    report: Report,
    max_rows: int,
    parts_of_path: PartsOfPath,
    size: str = "",
) -> list[RowSpec]:
    """Make the rows of a group; empty, and reported, if there are more than `max_rows` rows."""
    way = options.way
    parts = options.leave_one_out or options.add_one_in or options.cumulative
    if isinstance(parts, Settings):  # the end of the path is a preset
        parts = parts_of_path(way, parts)
        if not parts:
            return []
    # Count the rows before making any, since a grid can be astronomically large.
    count = _count(options, parts)
    if count > max_rows:
        report(
            options.node(way).mark, f"makes {count:,} rows; a study can have at most {MAX_ROWS:,}"
        )
        return []
    if way not in DESIGNS:
        rows = []
        for settings in _expand(way, getattr(options, way)):
            mark = next(iter(settings.values())).mark
            rows.append(RowSpec(group, options, mark, settings))
        return rows
    design: Design
    title = f"{size} {group}".strip()
    if way == "factorial":
        cells, design = factorial(title, options.factorial, options.fraction())
    else:
        cells, design = path(title, PATHS[PATHS.index(way)], parts)
    return [RowSpec(group, options, cell.mark, cell.settings, cell.title, design) for cell in cells]


def _count(options: Group, parts: Sequence[Part]) -> int:
    """Number of rows of a group. `parts` are the parts of a path."""
    match options.way:
        case "each":
            return sum(map(len, options.each.lists()))
        case "zip":
            return min(map(len, options.zip.lists()))
        case "grid":
            return math.prod(map(len, options.grid.lists()))
        case "factorial":
            return 1 << len(options.fraction().basic)  # 2^(k - p)
        case "leave-one-out" | "add-one-in":
            return len(parts) + 1  # and the row with all of them
        case "cumulative":
            return len(parts)
    return 1


def _expand(way: str, fields: Settings) -> Iterator[Settings]:
    """Yield the settings of each row of a group that is not a design."""
    if way == "set":
        yield fields
    elif way == "each":
        for name, node in fields.items():
            for value in node.value:
                yield Settings({name: value})
    else:
        combine: Any = {"zip": zip, "grid": itertools.product}[way]
        for values in combine(*fields.lists()):
            yield Settings(zip(fields, values, strict=True))
