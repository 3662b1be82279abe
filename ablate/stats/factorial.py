"""Two-level factorial designs: cells, fractions with their aliases, and effects with t intervals.

Levels are -1 and +1. A fraction has generators such as D = A B C, which gives the word A B C D = I.
The defining relation consists of all words and their products. Two effects whose product is a word
of the relation have the same contrast: they are aliases, and the design cannot distinguish them.

Source: Box, Hunter and Hunter, "Statistics for Experimenters" (2nd edition, 2005), chapters 5 and
    6.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ablate.stats.distributions import critical_t, two_sided_p
from ablate.stats.significance import LEVEL, holm_correction, rounding_error

Effect = frozenset[str]  # the factors of a main effect or of an interaction

MAX_FACTORS = 10


@dataclass(frozen=True)
class DesignGenerator:
    """A generated factor: its level in each cell is the product of the levels of other factors."""

    factor: str
    product: Effect


@dataclass(frozen=True)
class Fraction:
    """A two-level design: all combinations of the levels, or a fraction of them by generators.

    factors: names of the factors, in the order of the study file.
    generators: one for each factor whose level follows from other factors; none for a full design.
    """

    factors: tuple[str, ...]
    generators: tuple[DesignGenerator, ...] = ()

    @property
    def basic(self) -> tuple[str, ...]:
        """Factors without a generator; all combinations of their levels are cells."""
        basic = dict.fromkeys(self.factors)
        for generator in self.generators:
            del basic[generator.factor]
        return tuple(basic)

    def cells(self) -> list[dict[str, int]]:
        """The level of every factor in each cell; the last basic factor changes fastest."""
        cells = []
        for levels in itertools.product((-1, 1), repeat=len(self.basic)):
            cell = dict.fromkeys(self.factors, 1)  # in the order of the factors
            cell.update(zip(self.basic, levels, strict=True))
            for generator in self.generators:
                cell[generator.factor] = _sign(generator.product, cell)
            cells.append(cell)
        return cells

    @cached_property
    def relation(self) -> list[Effect]:
        """Words of the defining relation, without the identity I."""
        words: list[Effect] = [frozenset()]
        for generator in self.generators:
            word = generator.product ^ {generator.factor}
            # Symmetric difference: a factor times itself is I. Each generator doubles the words.
            words += [word ^ known for known in words]
        return words[1:]

    @property
    def resolution(self) -> int | None:
        """Length of the shortest word, such as 3 if an interaction of two factors is an alias of a
        main effect; None for a full design.
        """
        return min(map(len, self.relation), default=None)

    def aliases(self, effect: Effect) -> list[Effect]:
        """The other effects with the same contrast, the shortest first."""
        return sorted((effect ^ word for word in self.relation), key=self._order)

    def contrasts(self) -> list[Effect]:
        """One effect for each contrast: the shortest of its aliases, main effects first."""
        effects: list[Effect] = []
        # The words of the relation are constant over the cells, so they have no contrast.
        seen: set[Effect] = set(self.relation)
        for size in range(1, len(self.factors) + 1):
            for effect in map(frozenset, itertools.combinations(self.factors, size)):
                if effect not in seen:
                    seen |= {effect, *self.aliases(effect)}
                    effects.append(effect)
        return effects

    def text(self, effect: Effect) -> str:
        """An effect as text, in the order of the factors: `dropout × norm`."""
        return " × ".join(name for name in self.factors if name in effect)

    def _order(self, effect: Effect) -> tuple[int, list[int]]:
        return len(effect), sorted(map(self.factors.index, effect))


def smallest_fraction(factors: tuple[str, ...], resolution: int) -> Fraction:
    """The fraction with the fewest cells whose resolution is at least this one; the full design if
    there is no such fraction.

    The last factors get generators. Of several fractions, the first in the order of the factors is
    returned.
    """
    # Designs with more generated factors have fewer cells, so they are tried first.
    for n_generated in reversed(range(1, len(factors))):
        basic = factors[:-n_generated]
        generated = factors[-n_generated:]
        products: list[Effect] = []
        # A product of k factors makes a word of length k + 1, which must reach the resolution.
        # Long products are tried first, because they make long words.
        for size in range(len(basic), resolution - 2, -1):
            products += map(frozenset, itertools.combinations(basic, size))
        for chosen in itertools.combinations(products, n_generated):
            fraction = Fraction(factors, tuple(map(DesignGenerator, generated, chosen)))
            if (fraction.resolution or 0) >= resolution:
                return fraction
    return Fraction(factors)


@dataclass(frozen=True)
class Estimate:
    """An estimated effect: mean score at the high level minus mean score at the low level.

    The interaction of factors A and B is half of (effect of A at the high level of B minus effect
    of A at the low level of B). Interactions of more factors repeat this rule.

    value: the estimated effect.
    mean_at_low_level: mean score at the low level.
    standard_error: of the value; None if the scores show no spread within cells.
    low, high: confidence interval at the level of Holm's test of the effect, which is 95 % or more:
        it excludes 0 exactly if p_holm is below 0.05. None if the standard error is unknown.
    p: two-sided p value, with the pooled error.
    p_holm: p value after Holm's correction over the effects of the design.
    """

    effect: Effect
    value: float
    mean_at_low_level: float
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None


def effects(
    fraction: Fraction, scores: Sequence[Sequence[float]], level: float = LEVEL
) -> list[Estimate]:
    """Estimate every contrast of a design from the scores of its cells.

    The error is pooled over the cells: s^2 = sum of squared deviations from the means of the cells,
    divided by the sum of (n - 1), where n is the number of scores of a cell. A contrast is 2 / C
    times the signed sum of the C means, with variance 4 / C^2 s^2 sum(1 / n).

    Args:
        fraction: the design.
        scores: one or more scores of each cell, in the order of `fraction.cells()`.
        level: of the tests of all effects together. The p values are multiplied by 0.05 / level, so
            that an effect is significant if its p value is below 0.05.
    """
    cells = fraction.cells()
    means = list(map(statistics.fmean, scores))
    estimates = []
    for effect in fraction.contrasts():
        signed = [_sign(effect, cell) * mean for cell, mean in zip(cells, means, strict=True)]
        value = 2 / len(cells) * math.fsum(signed)
        estimates.append(Estimate(effect, value, statistics.fmean(means) - value / 2))
    squares = []
    reciprocals = []
    df = 0
    for cell_scores, mean in zip(scores, means, strict=True):
        squares += [(score - mean) ** 2 for score in cell_scores]
        reciprocals.append(1 / len(cell_scores))
        df += len(cell_scores) - 1
    variance = math.fsum(squares) / max(1, df)
    # Without any spread, the error is unknown.
    if not df or math.sqrt(variance) < rounding_error(itertools.chain(*scores)):
        return estimates
    error = 2 / len(cells) * math.sqrt(variance * math.fsum(reciprocals))
    p_values = [two_sided_p(estimate.value / error, df) for estimate in estimates]
    holm_tests = holm_correction(p_values, len(p_values), level)
    tested = []
    for estimate, p, test in zip(estimates, p_values, holm_tests, strict=True):
        margin = critical_t(test.level, df) * error
        estimate = replace(
            estimate,
            standard_error=error,
            low=estimate.value - margin,
            high=estimate.value + margin,
            p=min(1.0, p * LEVEL / level),
            p_holm=test.p,
        )
        tested.append(estimate)
    return tested


def _sign(effect: Effect, cell: dict[str, int]) -> int:
    return math.prod(cell[name] for name in effect)
