"""Groups that are designs: `factorial`, `leave-one-out` and `add-one-in`. Their rows are analyzed
together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ablate.config import standard_name
from ablate.errors import did_you_mean, unknown_name
from ablate.formatting import plural, setting_text
from ablate.stats.factorial import MAX_FACTORS, Fraction, Generator, smallest_fraction
from ablate.study.settings import Settings, is_value, known_fields
from ablate.study.yaml_nodes import Mark, Node, Report

Path = Literal["leave-one-out", "add-one-in"]
PATHS: tuple[Path, ...] = ("leave-one-out", "add-one-in")
DESIGNS = ("factorial", *PATHS)
FRACTIONS = ("generators", "resolution")  # keys beside `factorial`
RESOLUTIONS = (3, 4, 5)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, eq=False)
class FactorialDesign:
    """The cells of a factorial group.

    rows: label of each cell, in the order of `fraction.cells()`.
    levels: text of the low and of the high level of each factor.
    """

    group: str
    fraction: Fraction
    rows: tuple[str, ...]
    levels: Mapping[str, tuple[str, str]]

    def at_size(self, size: str) -> FactorialDesign:
        """The design of the rows of one size."""
        return replace(
            self, group=_at(size, self.group), rows=tuple(_at(size, row) for row in self.rows)
        )

    @property
    def title(self) -> str:
        """`2^(4-1) fractional factorial of resolution 4`."""
        k, p = len(self.fraction.factors), len(self.fraction.generators)
        if not p:
            return f"2^{k} full factorial"
        return f"2^({k}-{p}) fractional factorial of resolution {self.fraction.resolution}"

    def alias_lines(self) -> list[str]:
        """The defining relation, and the aliases of each main effect and of each interaction of two
        factors.
        """
        fraction = self.fraction
        if not fraction.generators:
            return []
        words = (fraction.signed_text(word, sign) for word, sign in fraction.relation.items())
        shown = [effect for effect in fraction.contrasts() if len(effect) <= 2]
        return [f"I = {' = '.join(words)}", *(self.alias_line(effect) for effect in shown)]

    def alias_line(self, effect: frozenset[str]) -> str:
        """`dropout = norm × activation`: an effect with its aliases."""
        texts = (
            self.fraction.signed_text(other, sign)
            for other, sign in self.fraction.aliases(effect).items()
        )
        return " = ".join([self.fraction.text(effect), *texts])


@dataclass(frozen=True, eq=False)
class PathDesign:
    """Rows between base and another configuration that changes several parts.

    way: `add-one-in` changes one part of base; `leave-one-out` leaves one part of the other
        configuration as in base.
    rows: label of the row of each part.
    whole: label of the row with every part.
    """

    group: str
    way: Path
    parts: tuple[str, ...]
    rows: tuple[str, ...]
    whole: str

    def at_size(self, size: str) -> PathDesign:
        """The design of the rows of one size."""
        rows = tuple(_at(size, row) for row in self.rows)
        return replace(self, group=_at(size, self.group), rows=rows, whole=_at(size, self.whole))


def _at(size: str, name: str) -> str:
    return f"{size} {name}" if size else name


Design = FactorialDesign | PathDesign


@dataclass(frozen=True)
class Cell:
    """A row of a design: its title, behind the group's name, and its settings."""

    title: str
    settings: Settings
    mark: Mark


@dataclass(frozen=True)
class _Part:
    """A field, or a named group of fields: its settings at each level, and the levels' texts."""

    name: str
    mark: Mark
    low: Settings
    high: Settings
    texts: tuple[str, str]


def expand_design(
    group: str, way: str, mapping: Node, report: Report, max_rows: int
) -> tuple[list[Cell], Design | None]:
    """Expand a group into the rows of its design; none after an error.

    Args:
        group: its name.
        way: one of DESIGNS.
        mapping: the group's keys.
        report: receives the errors.
        max_rows: the most rows that it may have.
    """
    node = mapping.value[way][1]
    if "where" in mapping.value:
        report(mapping.value["where"][0], f"where would drop rows that {way} needs; use require")
        return [], None
    for key in FRACTIONS:
        if key in mapping.value and way != "factorial":
            report(mapping.value[key][0], f"{key} belongs to factorial")
    parts = _read_parts(way, node, report)
    if not parts:
        return [], None
    if way != "factorial":
        return _path(group, "leave-one-out" if way == "leave-one-out" else "add-one-in", parts)
    fraction = _read_fraction(tuple(part.name for part in parts), mapping, node, report)
    if fraction is None:
        return [], None
    count = 2 ** len(fraction.basic)
    if count > max_rows:
        report(node.mark, f"makes {count:,} rows; the study has room for {max_rows:,}")
        return [], None
    return _factorial(group, parts, fraction)


def _factorial(group: str, parts: list[_Part], fraction: Fraction) -> tuple[list[Cell], Design]:
    cells = []
    for levels in fraction.cells():
        high = {part.name: levels[part.name] > 0 for part in parts}
        settings = {
            key: node
            for part in parts
            for key, node in (part.high if high[part.name] else part.low).items()
        }
        title = " ".join(f"{part.name}={part.texts[high[part.name]]}" for part in parts)
        cells.append(Cell(title, settings, parts[0].mark))
    rows = tuple(f"{group} {cell.title}" for cell in cells)
    return cells, FactorialDesign(group, fraction, rows, {part.name: part.texts for part in parts})


def _path(group: str, way: Path, parts: list[_Part]) -> tuple[list[Cell], Design]:
    def settings(chosen: list[_Part]) -> Settings:
        return {key: node for part in chosen for key, node in part.high.items()}

    if way == "add-one-in":
        cells = [Cell(f"+ {part.name}", settings([part]), part.mark) for part in parts]
    else:
        cells = [
            Cell(
                f"all - {part.name}",
                settings([other for other in parts if other is not part]),
                part.mark,
            )
            for part in parts
        ]
    names, rows = (
        tuple(part.name for part in parts),
        tuple(f"{group} {cell.title}" for cell in cells),
    )
    whole = Cell("all", settings(parts), parts[0].mark)
    return [whole, *cells], PathDesign(group, way, names, rows, f"{group} {whole.title}")


def _read_parts(way: str, node: Node, report: Report) -> list[_Part]:
    """The parts of a design; none after an error."""
    most = MAX_FACTORS if way == "factorial" else 100
    if not isinstance(node.value, dict) or not 2 <= len(node.value) <= most:
        report(
            node.mark,
            f"{way} needs 2 to {most} fields or named groups of fields; got {_count(node)}",
        )
        return []
    parts = [_read_part(way, name, mark, value, report) for name, mark, value in node.items()]
    found = [part for part in parts if part is not None]
    valid = len(found) == len(parts)
    owner: dict[str, str] = {}
    for part in found:
        for key in part.high:
            field = standard_name(key) or key
            if field in owner:
                report(part.mark, f'"{part.name}" and "{owner[field]}" both set {field}')
                valid = False
            owner[field] = part.name
    return found if valid else []


def _count(node: Node) -> str:
    return str(len(node.value)) if isinstance(node.value, dict) else node.kind


def _read_part(way: str, name: str, mark: Mark, value: Node, report: Report) -> _Part | None:
    if isinstance(value.value, dict):
        return _read_named_group(name, mark, value, report)
    field = known_fields(Node({name: (mark, value)}, mark), report)
    if not field:
        return None
    if way != "factorial":
        valid = is_value(name, value, report)
        return _Part(name, mark, {}, {name: value}, ("", "")) if valid else None
    levels = value.value
    if not isinstance(levels, list) or len(levels) != 2:
        got = plural(len(levels), "level") if isinstance(levels, list) else value.kind
        report(value.mark, f'"{name}" needs two levels, such as [low, high]; got {got}')
        return None
    # A list, and not a generator, so that both levels at fault are reported.
    if not all([is_value(name, level, report) for level in levels]):  # noqa: C419
        return None
    low, high = levels
    if low.to_python() == high.to_python():
        report(high.mark, f'"{name}" has the same level twice')
        return None
    return _Part(name, mark, {name: low}, {name: high}, (_text(low), _text(high)))


def _read_named_group(name: str, mark: Mark, value: Node, report: Report) -> _Part | None:
    """A group such as `llama: {norm: rmsnorm, activation: swiglu}`: base's values are its low
    level.
    """
    if not _NAME.fullmatch(name) or standard_name(name) is not None:
        allowed = "letters, digits, - and _, but not a field"
        report(mark, f'"{name[:60]}" is not a valid name for a group of fields; allowed: {allowed}')
        return None
    known = known_fields(value, report)
    valid = [is_value(key, node, report) for key, node in known.items()]
    if not known or not all(valid) or len(known) < len(value.value):
        if not value.value:
            report(value.mark, f'"{name}" needs at least one field')
        return None
    return _Part(name, mark, {}, known, ("off", "on"))


def _text(node: Node) -> str:
    return setting_text(node.to_python(), unset="null")


def _read_fraction(
    factors: tuple[str, ...], mapping: Node, node: Node, report: Report
) -> Fraction | None:
    """The fraction that `generators` or `resolution` states; the full design without them; None
    after an error.
    """
    if all(key in mapping.value for key in FRACTIONS):
        report(
            mapping.value["resolution"][0], "resolution follows from generators; remove one of them"
        )
        return None
    if "resolution" in mapping.value:
        wanted = mapping.value["resolution"][1]
        if type(wanted.value) is not int or wanted.value not in RESOLUTIONS:
            report(wanted.mark, f"resolution: {wanted.kind} is not allowed: must be 3, 4 or 5")
            return None
        fraction = smallest_fraction(factors, wanted.value)
        if not fraction.generators:
            report(
                wanted.mark,
                f"no fraction of {len(factors)} factors has resolution {wanted.value}; remove "
                f"resolution",
            )
            return None
        return fraction
    if "generators" not in mapping.value:
        return Fraction(factors)
    written = mapping.value["generators"][1]
    if not isinstance(written.value, dict) or not written.value:
        report(
            written.mark,
            f"generators must be a mapping such as {{D: A * B * C}}; got {written.kind}",
        )
        return None
    generators = [one for one in _read_generators(factors, written, report) if one is not None]
    if len(generators) < len(written.value):
        return None
    fraction = Fraction(factors, tuple(generators))
    if (fraction.resolution or 0) < 3:
        words = ", ".join(fraction.text(word) for word in fraction.relation if len(word) < 3)
        report(written.mark, f"these generators confound main effects with each other: I = {words}")
        return None
    return fraction


def _read_generators(
    factors: tuple[str, ...], written: Node, report: Report
) -> Iterator[Generator | None]:
    generated = set(written.value)
    basic = [name for name in factors if name not in generated]
    for factor, mark, node in written.items():
        if factor not in factors:
            report(mark, unknown_name("factor", factor, factors))
            yield None
            continue
        text = str(node.to_python())
        names = [name.strip() for name in text.removeprefix("-").split("*")]
        wrong = next((name for name in names if name not in basic), None)
        if wrong is not None or len(set(names)) < len(names):
            nearest = did_you_mean(wrong, basic) if wrong else ""
            why = (
                f'"{wrong}" is no factor without a generator'
                if wrong is not None
                else "a factor is repeated"
            )
            remedy = nearest or f"; write a product such as {' * '.join(basic[:2])}"
            report(node.mark, f"{factor}: {why}{remedy}")
            yield None
            continue
        yield Generator(factor, frozenset(names), -1 if text.startswith("-") else 1)
