"""Rows that are analyzed together: cells of a factorial, and paths from base to a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ablate.stats.factorial import MAX_FACTORS, Fraction

Path = Literal["leave-one-out", "add-one-in", "cumulative"]
PATHS: tuple[Path, ...] = ("leave-one-out", "add-one-in", "cumulative")


@dataclass(frozen=True, eq=False)
class FactorialDesign:
    """The cells of a factorial group, of one size.

    rows: label of each cell, in the order of `fraction.cells()`.
    levels: text of the low and of the high level of each factor.
    settings: text of the settings of each factor that is a group of fields.
    """

    group: str
    fraction: Fraction
    rows: tuple[str, ...]
    levels: Mapping[str, tuple[str, str]]
    settings: Mapping[str, str]

    @property
    def title(self) -> str:
        """`2^(4-1) fractional factorial of resolution 4`."""
        k, p = len(self.fraction.factors), len(self.fraction.generators)
        if not p:
            return f"2^{k} full factorial"
        return f"2^({k}-{p}) fractional factorial of resolution {self.fraction.resolution}"

    def alias_lines(self) -> list[str]:
        """The defining relation; the aliases of main effects and of interactions of two factors."""
        fraction = self.fraction
        if not fraction.generators:
            return []
        words = ["I"]
        for word, sign in fraction.relation.items():
            words.append(fraction.signed_text(word, sign))
        lines = [" = ".join(words)]
        for effect in fraction.contrasts():
            if len(effect) <= 2:
                lines.append(self.alias_line(effect))
        return lines

    def alias_line(self, effect: frozenset[str], factors: int = MAX_FACTORS) -> str:
        """`dropout = norm × activation`: an effect with its aliases of at most so many factors."""
        texts = [self.fraction.text(effect)]
        for alias, sign in self.fraction.aliases(effect).items():
            if len(alias) <= factors:
                texts.append(self.fraction.signed_text(alias, sign))
        return " = ".join(texts)


@dataclass(frozen=True, eq=False)
class PathDesign:
    """Rows between base and another configuration that changes several parts.

    way: `add-one-in` changes one part of base; `leave-one-out` leaves one part of the other
        configuration as in base; `cumulative` changes one part after another.
    rows: label of the row of each part.
    whole: label of the row with every part.
    settings: text of the settings of each part.
    """

    group: str
    way: Path
    parts: tuple[str, ...]
    rows: tuple[str, ...]
    whole: str
    settings: Mapping[str, str]


Design = FactorialDesign | PathDesign
