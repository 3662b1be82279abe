"""Groups that are designs, whose rows are analyzed together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from ablate.config.resolve import standard_name
from ablate.config.steps import Resolve, steps_between
from ablate.errors import Fault, Invalid, Mark, listed, meant_name, nested, unknown_name
from ablate.formatting import plural, setting_text, settings_text
from ablate.stats.designs import PATHS, FactorialDesign, Path, PathDesign
from ablate.stats.factorial import MAX_FACTORS, DesignGenerator, Fraction, smallest_fraction
from ablate.study.settings import Settings, name_faults, schema_reference, value_faults
from ablate.study.typed import KEY, Misplaced, mapping_of
from ablate.study.yaml_nodes import Node

DESIGNS = ("factorial", *PATHS)
MAX_PARTS = 100

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True)
class Cell:
    """A row of a design: its title, behind the group's name, and its settings."""

    title: str
    settings: Settings
    mark: Mark


@dataclass(frozen=True)
class Part:
    """A field, or a named group of fields: its settings at each level, and the levels' texts."""

    name: str
    mark: Mark
    low: Settings
    high: Settings
    texts: tuple[str, str]


def factorial(
    group: str, parts: Sequence[Part], fraction: Fraction
) -> tuple[list[Cell], FactorialDesign]:
    """The rows of a factorial group."""
    cells = []
    for levels in fraction.cells():
        settings, titles = Settings(), []
        for part in parts:
            is_high = levels[part.name] > 0
            settings.update((part.low, part.high)[is_high])
            titles.append(f"{part.name}={part.texts[is_high]}")
        cells.append(Cell(" ".join(titles), settings, parts[0].mark))
    texts = {part.name: part.texts for part in parts}
    labels, of_groups = _labels(group, cells), _settings_of(parts)
    return cells, FactorialDesign(group, fraction, labels, texts, of_groups)


def path(group: str, way: Path, parts: Sequence[Part]) -> tuple[list[Cell], PathDesign]:
    """The rows of a group with one part changed, or left as in base, at a time, or with one part
    more in each.
    """
    whole, cells = Cell("all", together(parts), parts[0].mark), []
    for index, part in enumerate(parts):
        title, changed = f"+ {part.name}", [part]
        if way == "leave-one-out":
            title, changed = f"all - {part.name}", [*parts[:index], *parts[index + 1 :]]
        elif way == "cumulative":
            title, changed = f"up to {part.name}", list(parts[: index + 1])
        cells.append(Cell(title, together(changed), part.mark))
    (label,) = _labels(group, [whole])
    if way == "cumulative":
        cells[-1] = whole
    rows, names, settings = _labels(group, cells), names_of(parts), _settings_of(parts)
    design = PathDesign(group, way, names, rows, label, settings)
    return (cells if way == "cumulative" else [whole, *cells]), design


def _labels(group: str, cells: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(f"{group} {cell.title}" for cell in cells)


def _settings_of(parts: Iterable[Part]) -> dict[str, str]:
    texts = {}
    for part in parts:
        if not part.low:  # else it is a factor with two levels, which labels show
            values = ((standard_name(key) or key, part.high[key].to_python()) for key in part.high)
            texts[part.name] = settings_text(dict(values))
    return texts


def names_of(parts: Sequence[Part]) -> tuple[str, ...]:
    """The names of parts."""
    return tuple(part.name for part in parts)


def together(parts: Iterable[Part]) -> Settings:
    """The settings of the high levels of all parts."""
    settings = Settings()
    for part in parts:
        settings.update(part.high)
    return settings


def parts_of(way: str, most: int, field: Mapping[str, Any]) -> Any:
    """The type of the parts of a design: fields, or groups of them; of a path, also a preset."""

    def check(value: Any) -> list[Part] | Settings:
        value = mapping_of(value, "fields, and of named groups of fields")
        if way in PATHS and "preset" in value:
            return Settings.from_file(value)  # its parts depend on base
        if not 2 <= len(value) <= most:
            needs = f"needs 2 to {most} fields or named groups of fields; got {len(value)}"
            raise Misplaced(f"{way} {needs}")
        parts: list[Part] = []
        faults: list[Fault] = []
        owner: dict[str, str] = {}
        for name, mark, node in value.node.items():
            of_part = list(nested(name, _part_faults(way, name, node)))
            if of_part:
                faults += of_part
                continue
            parts.append(_part(way, name, mark, node))
            for key in parts[-1].high:
                changed = standard_name(key) or key
                if changed in owner:
                    both = f'"{name}" and "{owner[changed]}" both set {changed}'
                    faults.append(Fault(both, path=(name, KEY)))
                owner[changed] = name
        if faults:
            raise Misplaced(*faults, depth=0)
        return parts

    branches = [field, schema_reference("settings")]
    least: dict[str, Any] = {"minProperties": 2}
    if way in PATHS:
        least = {"anyOf": [least, {"required": ["preset"]}]}
    schema = {"type": "object", "additionalProperties": {"anyOf": branches}, **least}
    return Annotated[Any, PlainValidator(check), WithJsonSchema(schema)]


def parts_to(
    way: str, mark: Mark, base: Mapping[str, Any], end: Mapping[str, Any], resolve: Resolve
) -> list[Part]:
    """The parts in which base and the end of a path differ, by the settings of both.

    Raises:
        ValidationError, Invalid: the settings are not valid, or there are fewer than two parts.
    """
    steps = steps_between(base, end, resolve)
    if len(steps) < 2:
        differ = f"base and preset {end['preset']} differ in {listed(steps or ['nothing'])}"
        raise Invalid(Fault(f"{way} needs two parts or more; {differ}", tuple(base)))
    made = []
    for name, fields in steps.items():
        high = Settings()
        for field, value in fields.items():
            high[field] = _node(value, mark)
        made.append(Part(name, mark, Settings(), high, ("off", "on")))
    return made


def _node(value: Any, mark: Mark) -> Node:
    if isinstance(value, tuple):
        return Node([Node(entry, mark) for entry in value], mark)
    return Node(value, mark)


def _part(way: str, name: str, mark: Mark, node: Node) -> Part:
    """A part without faults; base's values are the low level of a group of fields."""
    if isinstance(node.value, dict):
        return Part(name, mark, Settings(), Settings(node.fields()), ("off", "on"))
    if way != "factorial":
        return Part(name, mark, Settings(), Settings({name: node}), ("", ""))
    low, high = node.value
    texts = _text(low), _text(high)
    return Part(name, mark, Settings({name: low}), Settings({name: high}), texts)


def _part_faults(way: str, name: str, node: Node) -> Iterator[Fault]:
    if isinstance(node.value, dict):
        if not _NAME.fullmatch(name) or standard_name(name) is not None:
            needs = "allowed: letters, digits, - and _, but not a field"
            invalid = f'"{name[:60]}" is not a valid name for a group of fields; {needs}'
            yield Fault(invalid, path=(KEY,))
        elif not node.value:
            yield Fault(f'"{name}" needs at least one field')
        yield from name_faults(node)
        for key, _, value in node.items():
            yield from nested(key, value_faults(key, value))
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
            yield from nested(index, value_faults(name, level))
        if node.value[0].to_python() == node.value[1].to_python():
            yield Fault(f'"{name}" has the same level twice', path=(1,))


def _text(node: Node) -> str:
    return setting_text(node.to_python(), unset="null")


_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_LEVELS = {"type": "array", "minItems": 2, "maxItems": 2, "items": _SCALAR}
Factors = parts_of("factorial", MAX_FACTORS, _LEVELS)
Added = parts_of("add-one-in", MAX_PARTS, _SCALAR)
LeftOut = parts_of("leave-one-out", MAX_PARTS, _SCALAR)
Cumulated = parts_of("cumulative", MAX_PARTS, _SCALAR)


def fraction_of(parts: Sequence[Part], generators: Mapping[str, str], resolution: int) -> Fraction:
    """The fraction that `generators` or `resolution` states; the full design without them.

    Raises:
        Misplaced: it does not exist, by path from the group.
    """
    factors = names_of(parts)
    if resolution and generators:
        both, remedy = "resolution follows from generators", "remove one of them"
        raise Misplaced(Fault(both, remedy=remedy, path=("resolution", KEY)))
    if resolution:
        fraction = smallest_fraction(factors, resolution)
        if not fraction.generators:
            what = f"no fraction of {len(factors)} factors has resolution {resolution}"
            raise Misplaced(Fault(what, remedy="remove resolution", path=("resolution",)))
        return fraction
    basic = [name for name in factors if name not in generators]
    read = []
    for factor, text in generators.items():
        if factor not in factors:
            unknown = unknown_name("factor", factor, factors)
            raise Misplaced(unknown.nested("generators", factor, KEY))
        names = list(map(str.strip, text.removeprefix("-").split("*")))
        for index, name in enumerate(names):
            if name not in basic:
                meant = meant_name(name, basic)
                remedy = "" if meant else _product(basic)
                what = f'"{name}" is no factor without a generator'
                fault = Fault(what, subject=factor, remedy=remedy, meant=meant)
                raise Misplaced(fault.nested("generators", factor))
            if name in names[:index]:
                fault = Fault("a factor is repeated", subject=factor, remedy=_product(basic))
                raise Misplaced(fault.nested("generators", factor))
        sign = -1 if text.startswith("-") else 1
        read.append(DesignGenerator(factor, frozenset(names), sign))
    fraction = Fraction(factors, tuple(read))
    if read and (fraction.resolution or 0) < 3:
        words = ", ".join(fraction.text(word) for word in fraction.relation if len(word) < 3)
        message = f"these generators confound main effects with each other: I = {words}"
        raise Misplaced(Fault(message, path=("generators",)))
    return fraction


def _product(basic: Sequence[str]) -> str:
    return f"write a product such as {' * '.join(basic[:2])}"
