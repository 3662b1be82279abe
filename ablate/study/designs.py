"""Groups of rows that are designs: factorials, and paths between base and a target configuration.

A design has parts, each a field or a named group of fields. Its rows are analyzed together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from ablate.config.resolve import standard_name
from ablate.config.steps import Resolve, steps_between
from ablate.errors import Fault, Invalid, Mark, listed, nested_faults
from ablate.formatting import plural, setting_text, settings_text
from ablate.stats.designs import PATHS, FactorialDesign, Path, PathDesign
from ablate.stats.factorial import MAX_FACTORS, Fraction, smallest_fraction
from ablate.study.settings import Settings, name_faults, schema_reference, value_faults
from ablate.study.typed import KEY, Misplaced, mapping_of
from ablate.study.yaml_nodes import Node

DESIGNS = ("factorial", *PATHS)
MAX_PARTS = 100

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True)
class Cell:
    """A row of a design.

    title: part of the row's label after the group's name.
    settings: settings of the row as written.
    mark: position in the file.
    """

    title: str
    settings: Settings
    mark: Mark


@dataclass(frozen=True)
class Part:
    """A part of a design: a field, or a named group of fields.

    name: name of the field or of the group of fields.
    mark: position in the file.
    low: settings at the low level; empty for the values of base.
    high: settings at the high level.
    texts: text of the low and of the high level in labels.
    """

    name: str
    mark: Mark
    low: Settings
    high: Settings
    texts: tuple[str, str]


def factorial(
    group: str, parts: Sequence[Part], fraction: Fraction
) -> tuple[list[Cell], FactorialDesign]:
    """Make the rows and the design of a factorial group."""
    cells = []
    for levels in fraction.cells():
        settings = Settings()
        titles = []
        for part in parts:
            low_text, high_text = part.texts
            if levels[part.name] > 0:
                settings.update(part.high)
                titles.append(f"{part.name}={high_text}")
            else:
                settings.update(part.low)
                titles.append(f"{part.name}={low_text}")
        cells.append(Cell(" ".join(titles), settings, parts[0].mark))
    texts = {part.name: part.texts for part in parts}
    labels = tuple(_label(group, cell) for cell in cells)
    return cells, FactorialDesign(group, fraction, labels, texts, _settings_texts(parts))


def path(group: str, way: Path, parts: Sequence[Part]) -> tuple[list[Cell], PathDesign]:
    """Make the rows and the design of a path from base, which changes no part, to the target, which
    changes all parts.

    A row changes one part of base (`add-one-in`), all parts but one (`leave-one-out`), or the first
    parts (`cumulative`), where the last row is the target.
    """
    target = Cell("all", _high_settings(parts), parts[0].mark)
    cells = []
    for index, part in enumerate(parts):
        title = f"+ {part.name}"
        changed = [part]
        if way == "leave-one-out":
            title = f"all - {part.name}"
            changed = [*parts[:index], *parts[index + 1 :]]
        elif way == "cumulative":
            title = f"up to {part.name}"
            changed = list(parts[: index + 1])
        cells.append(Cell(title, _high_settings(changed), part.mark))
    all_cells = [target, *cells]
    if way == "cumulative":
        cells[-1] = target
        all_cells = cells
    design = PathDesign(
        group,
        way,
        parts=_names(parts),
        rows=tuple(_label(group, cell) for cell in cells),
        target=_label(group, target),
        settings=_settings_texts(parts),
    )
    return all_cells, design


def _label(group: str, cell: Cell) -> str:
    return f"{group} {cell.title}"


def _settings_texts(parts: Iterable[Part]) -> dict[str, str]:
    """The text of each part's settings, by name; without factors that have a text for each level,
    which labels show.
    """
    texts = {}
    for part in parts:
        if not part.low:
            values = {}
            for key, node in part.high.items():
                values[standard_name(key) or key] = node.to_python()
            texts[part.name] = settings_text(values)
    return texts


def _names(parts: Sequence[Part]) -> tuple[str, ...]:
    return tuple(part.name for part in parts)


def _high_settings(parts: Iterable[Part]) -> Settings:
    """The settings of the high levels of all parts, in one mapping."""
    settings = Settings()
    for part in parts:
        settings.update(part.high)
    return settings


def _parts_type(way: str, most: int, field: Mapping[str, Any]) -> Any:
    """The pydantic type of the parts of a design, with the JSON Schema of a part that is a field.

    Returns:
        A type whose values are the parts; or, for a path that ends at a preset, the settings of the
        end.
    """

    def check(value: Any) -> list[Part] | Settings:
        value = mapping_of(value, "fields, and of named groups of fields")
        if way in PATHS and "preset" in value:
            return Settings.from_file(value)  # its parts depend on base
        if not 2 <= len(value) <= most:
            rule = f"needs 2 to {most} fields or named groups of fields; got {len(value)}"
            raise Misplaced(f"{way} {rule}")
        parts: list[Part] = []
        faults: list[Fault] = []
        part_of_field: dict[str, str] = {}
        for name, mark, node in value.node.items():
            part_faults = list(nested_faults(name, _part_faults(way, name, node)))
            if part_faults:
                faults += part_faults
                continue
            part = _part(way, name, mark, node)
            parts.append(part)
            for key in part.high:
                changed = standard_name(key) or key
                if changed in part_of_field:
                    both = f'"{name}" and "{part_of_field[changed]}" both set {changed}'
                    faults.append(Fault(both, path=(name, KEY)))
                part_of_field[changed] = name
        if faults:
            raise Misplaced(*faults, depth=0)
        return parts

    branches = [field, schema_reference("settings")]
    least: dict[str, Any] = {"minProperties": 2}
    if way in PATHS:
        least = {"anyOf": [least, {"required": ["preset"]}]}
    schema = {"type": "object", "additionalProperties": {"anyOf": branches}, **least}
    return Annotated[Any, PlainValidator(check), WithJsonSchema(schema)]


def parts_of_path(
    way: str, mark: Mark, base: Mapping[str, Any], end: Mapping[str, Any], resolve: Resolve
) -> list[Part]:
    """The parts in which base and the end of a path, settings with a preset, differ.

    Raises:
        ValidationError, Invalid: the settings are not valid, or there are fewer than two parts.
    """
    steps = steps_between(base, end, resolve)
    if len(steps) < 2:
        differ = f"base and preset {end['preset']} differ in {listed(steps or ['nothing'])}"
        raise Invalid(Fault(f"{way} needs two parts or more; {differ}", tuple(base)))
    parts = []
    for name, fields in steps.items():
        high = Settings()
        for field, value in fields.items():
            high[field] = _node(value, mark)
        parts.append(Part(name, mark, Settings(), high, ("off", "on")))
    return parts


def _node(value: Any, mark: Mark) -> Node:
    if isinstance(value, tuple):
        return Node([Node(entry, mark) for entry in value], mark)
    return Node(value, mark)


def _part(way: str, name: str, mark: Mark, node: Node) -> Part:
    """Make a part from a node without faults. The low level of a group of fields is base."""
    if isinstance(node.value, dict):
        return Part(name, mark, Settings(), Settings(node.fields()), ("off", "on"))
    if way != "factorial":
        return Part(name, mark, Settings(), Settings({name: node}), ("", ""))
    low, high = node.value
    texts = _text(low), _text(high)
    return Part(name, mark, Settings({name: low}), Settings({name: high}), texts)


def _part_faults(way: str, name: str, node: Node) -> Iterator[Fault]:
    """Yield the faults of the name and the settings of a part."""
    if isinstance(node.value, dict):
        if not _NAME.fullmatch(name) or standard_name(name) is not None:
            rule = "allowed are letters, digits, - and _, but not the name of a field"
            invalid = f'"{name[:60]}" is not a valid name for a group of fields; {rule}'
            yield Fault(invalid, path=(KEY,))
        elif not node.value:
            yield Fault(f'"{name}" needs at least one field')
        yield from name_faults(node)
        for key, _, value in node.items():
            yield from nested_faults(key, value_faults(key, value))
        return
    unknown = list(name_faults(Node({name: (node.mark, node)}, node.mark)))
    if unknown:
        yield replace(unknown[0], path=(KEY,))
    elif way != "factorial":
        yield from value_faults(name, node)
    elif not isinstance(node.value, list) or len(node.value) != 2:
        got = node.kind
        if isinstance(node.value, list):
            got = plural(len(node.value), "level")
        yield Fault(f'"{name}" needs two levels, such as [low, high]; got {got}')
    else:
        for index, level in enumerate(node.value):
            yield from nested_faults(index, value_faults(name, level))
        if node.value[0].to_python() == node.value[1].to_python():
            yield Fault(f'"{name}" has the same level twice', path=(1,))


def _text(node: Node) -> str:
    return setting_text(node.to_python(), unset="null")


_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_LEVELS = {"type": "array", "minItems": 2, "maxItems": 2, "items": _SCALAR}
Factors = _parts_type("factorial", MAX_FACTORS, _LEVELS)
Added = _parts_type("add-one-in", MAX_PARTS, _SCALAR)
LeftOut = _parts_type("leave-one-out", MAX_PARTS, _SCALAR)
Cumulated = _parts_type("cumulative", MAX_PARTS, _SCALAR)


def fraction_of(parts: Sequence[Part], resolution: int) -> Fraction:
    """The fraction of a factorial with at least this resolution; for 0 the full factorial.

    Raises:
        Misplaced: the fraction does not exist; the fault has its path from the group.
    """
    factors = _names(parts)
    if not resolution:
        return Fraction(factors)
    fraction = smallest_fraction(factors, resolution)
    if not fraction.generators:
        problem = f"no fraction of {len(factors)} factors has resolution {resolution}"
        raise Misplaced(Fault(problem, remedy="remove resolution", path=("resolution",)))
    return fraction
