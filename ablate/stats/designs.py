"""Designs: the cells of a factorial, and paths from base to another configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ablate.stats.factorial import MAX_FACTORS, Fraction

Path = Literal["leave-one-out", "add-one-in", "cumulative"]
PATHS: tuple[Path, ...] = ("leave-one-out", "add-one-in", "cumulative")


@dataclass(frozen=True, eq=False)
class FactorialDesign:
    """A factorial group at one model size.

    group: name of the group in the study.
    fraction: the design.
    rows: label of the row of each cell, in the order of `fraction.cells()`.
    levels: texts of the low and the high level, by factor.
    settings: text of the settings, by factor, for factors that change several fields together.
    """

    group: str
    fraction: Fraction
    rows: tuple[str, ...]
    levels: Mapping[str, tuple[str, str]]
    settings: Mapping[str, str]

    @property
    def title(self) -> str:
        """`2^(4-1) fractional factorial of resolution 4`."""
        k = len(self.fraction.factors)
        p = len(self.fraction.generators)
        if p == 0:
            return f"2^{k} full factorial"
        return f"2^({k}-{p}) fractional factorial of resolution {self.fraction.resolution}"

    def as_json(self) -> dict[str, Any]:
        """The design as JSON values."""
        content = {"group": self.group, "title": self.title}
        return content | {"rows": list(self.rows), "aliases": self.alias_lines()}

    def alias_lines(self) -> list[str]:
        """The defining relation, then the aliases of each main effect and of each interaction of
        two factors; empty for a full factorial.
        """
        fraction = self.fraction
        if not fraction.generators:
            return []
        lines = [" = ".join(("I", *map(fraction.text, fraction.relation)))]
        for effect in fraction.contrasts():
            if len(effect) <= 2:
                lines.append(self.alias_line(effect))
        return lines

    def alias_line(self, effect: frozenset[str], max_factors: int = MAX_FACTORS) -> str:
        """`dropout = norm × activation`: an effect with its aliases of at most `max_factors`
        factors.
        """
        texts = [self.fraction.text(effect)]
        for alias in self.fraction.aliases(effect):
            if len(alias) <= max_factors:
                texts.append(self.fraction.text(alias))
        return " = ".join(texts)


@dataclass(frozen=True, eq=False)
class PathDesign:
    """Rows between base and a target row, which differs from base in several parts.

    way: how rows are made. `add-one-in` changes one part of base, `leave-one-out` changes one part
        of the target back to base, `cumulative` changes one part after another.
    rows: label of the row of each part.
    target: label of the row with every part changed.
    settings: text of the settings of each part.
    """

    group: str
    way: Path
    parts: tuple[str, ...]
    rows: tuple[str, ...]
    target: str
    settings: Mapping[str, str]


Design = FactorialDesign | PathDesign
