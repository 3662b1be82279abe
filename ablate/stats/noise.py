"""Noise of the seeds: the variance of each row around the two-way layout row x seed, and the
variance that rows share.

A score is modeled as effect of the row + effect of the seed + noise. Rows are compared with base on
the same seeds, so differences from base suffice: the effect of the seed cancels. Seeds that only
base has make its mean more certain, the less so the larger the effect of the seed is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.stats.distributions import f_tail

APART_LEVEL = 0.05  # of the test whether a row is noisier than the others, over all rows

Differences = Mapping[int, float]  # row - base, by seed


@dataclass(frozen=True)
class Variance:
    """An estimated variance, with its degrees of freedom."""

    value: float
    df: float


@dataclass(frozen=True)
class BaseScores:
    """Base's scores by seed: with the seeds of the rows, and with further ones that no row has."""

    shared: Mapping[int, float]
    further: Mapping[int, float]


@dataclass(frozen=True)
class FurtherSeeds:
    """What the seeds that only base has tell.

    scores: base's scores with them, two or more.
    seed_effect: variance of the effect of the seed, which rows and base share.
    base: base's own variance, from all of its seeds.
    """

    scores: tuple[float, ...]
    seed_effect: float
    base: Variance

    def weight(self, n: int, noise: float) -> float:
        """Weight of these seeds in base's mean, which minimizes the variance of a difference.

        Args:
            n: number of seeds that the row has in common with base.
            noise: base's variance.
        """
        k = len(self.scores)
        ratio = self.seed_effect / noise if noise else math.inf
        return k / ((n + k) * (1 + ratio))


@dataclass(frozen=True)
class SeedNoise:
    """Variances of one score over seeds, of base and of rows, each at its index.

    own: of each row alone, from its residuals; base first.
    pooled: mean over the rows whose variances agree.
    apart: indexes of rows that are significantly noisier than the others; they are not pooled.
    further: seeds that only base has; None if there are fewer than two.
    """

    own: tuple[Variance, ...]
    pooled: Variance
    apart: frozenset[int] = frozenset()
    further: FurtherSeeds | None = None

    def weight(self, n: int) -> float:
        """Weight of base's further seeds in the mean with which a row of n seeds is compared."""
        return self.further.weight(n, self._shared(0)) if self.further else 0.0

    def of_difference(self, index: int, n: int) -> tuple[Variance, ...]:
        """Variance of the difference of row `index` from base with one of n seeds, as independent
        parts.

        The row and base each count with the larger of their own and the pooled variance. A row set
        apart counts with its own. Base's further seeds take their weight from base's variance.
        """
        alone, shared = [], []
        for place, share in ((index, 1.0), (0, 1.0 - self.weight(n))):
            value = self._shared(place) * share
            if place in self.apart:
                alone.append(Variance(value, self.own[place].df))
            else:
                shared.append(value)
        if shared:
            alone.append(Variance(sum(shared), self.pooled.df))
        return tuple(alone)

    def own_of_difference(self, index: int, n: int) -> tuple[Variance, ...]:
        """Variance of the difference by the residuals of the row and of base alone.

        If base is noisier than the shared variance says, the row counts with no less than the
        shared variance. All rows have the noise of base in common, so that one of many rows easily
        seems to have little noise besides.
        """
        row, base = self.own[index], self.own[0]
        value = row.value
        if base.value > self.pooled.value and index not in self.apart:
            value = max(value, self.pooled.value)
        of_base = base.value * (1.0 - self.weight(n))
        if self.further is None:
            return (Variance(value + of_base, row.df),)
        return (Variance(value, row.df), Variance(of_base, base.df))

    def _shared(self, index: int) -> float:
        """The variance with which a row or base counts in the first test."""
        own = self.own[index].value
        return own if index in self.apart else max(own, self.pooled.value)


def seed_noise(rows: Sequence[Differences], base: BaseScores | None = None) -> SeedNoise:
    """Estimate the variances over seeds from the differences of rows from base.

    Least squares on row and seed; seeds may be missing. A row's variance is the sum of its squared
    residuals, divided by the sum of 1 - leverage. Rows that are noisier than the others (F test
    against the pool of the others, Bonferroni over the rows, the noisiest first) are set apart, and
    the layout is fitted again without them.

    Args:
        rows: differences of each row by seed: one row or more, each with two seeds or more.
        base: base's scores, where it has seeds that no row has.
    """
    layout = _Layout(rows)
    kept = list(range(len(rows) + 1))
    while True:
        variances, further = layout.variances(kept), None
        if base is not None:
            further = _further_seeds(layout, kept, variances, base)
        df = max(1.0, sum(variances[place].df for place in kept) - (len(layout.seeds) - 1))
        if further is not None:
            if 0 in kept:
                df += further.base.df - variances[0].df
            variances[0] = further.base
        noisiest = _noisiest(variances, kept, df)
        if noisiest is None:
            break
        # One at a time: a very noisy row inflates the pool, behind which a second one may hide.
        kept.remove(noisiest)
    apart = frozenset(range(len(variances))).difference(kept)
    return SeedNoise(tuple(variances), Variance(_pooled(variances, kept), df), apart, further)


def _pooled(variances: Sequence[Variance], places: Sequence[int]) -> float:
    """The mean of the variances at these places, weighted by their degrees of freedom."""
    squares = sum(variances[place].df * variances[place].value for place in places)
    return squares / sum(variances[place].df for place in places)


def _further_seeds(
    layout: _Layout, kept: Sequence[int], variances: Sequence[Variance], base: BaseScores
) -> FurtherSeeds | None:
    """Estimate the effect of the seed and base's noise with the seeds that only base has.

    The variance of base's further scores is that of the effect of the seed plus base's noise. The
    means of the rows by seed show the effect of the seed alone, so the difference of the two is a
    second estimate of base's noise beside its residuals. Both are weighted by their precision: that
    of the difference as if base had the noise of the rows, or, if its further scores vary
    significantly more than that explains (F test), as if the excess were base's own.

    Returns: None with fewer than two further scores, or if the seeds show no noise.
    """
    scores = tuple(base.further.values())
    rows = [place for place in kept if place]
    noise = 0.0
    if rows:
        noise = _pooled(variances, rows)
    if len(scores) < 2 or not noise:
        return None
    effects, of_rows = layout.seed_effects(rows, base.shared, noise)
    n, k = len(effects), len(scores)
    from_means = statistics.variance(effects) - of_rows
    spread = statistics.variance(scores)
    estimate = ((n - 1) * from_means + (k - 1) * (spread - noise)) / (n + k - 2)
    effect = max(0.0, estimate)
    # The effect of the seed by the rows alone. A few diverged trainings of base would pass for a
    # large effect otherwise, and leave its noise as small as its other seeds say.
    shared = max(0.0, from_means)
    likely = noise
    if f_tail(spread / (shared + of_rows + noise), k - 1, n - 1) < APART_LEVEL:
        likely = spread - shared - of_rows
    # Degrees of freedom: the variance of an estimated variance v is 2 v^2 / df.
    df = likely**2 / ((likely + shared) ** 2 / (k - 1) + (shared + of_rows) ** 2 / (n - 1))
    own = variances[0]
    value = max(0.0, (own.df * own.value + df * (spread - from_means)) / (own.df + df))
    return FurtherSeeds(scores, effect, Variance(value, own.df + df))


def _noisiest(variances: Sequence[Variance], kept: Sequence[int], df: float) -> int | None:
    """The row whose variance exceeds that of the others, if any; at least two remain."""
    place = max(kept, key=lambda place: variances[place].value)
    others = [variances[index].value for index in kept if index != place]
    rest = statistics.fmean(others)
    # Of two rows alone, neither is the exception.
    if len(others) < 2 or not rest:
        return None
    p = f_tail(variances[place].value / rest, variances[place].df, df)
    return place if p < APART_LEVEL / len(kept) else None


class _Layout:
    """The differences as a matrix of rows x seeds; base, with zeros, is the first row."""

    def __init__(self, rows: Sequence[Differences]) -> None:
        import numpy as np

        self.seeds = sorted(set().union(*rows))
        self.values = np.zeros((len(rows) + 1, len(self.seeds)))
        self.present = np.ones_like(self.values)
        for place, row in enumerate(rows, 1):
            for column, seed in enumerate(self.seeds):
                self.values[place, column] = row.get(seed, 0.0)
                self.present[place, column] = seed in row
        # Rounding of equal differences must not pass for noise.
        self.resolution = (1e-12 * (1.0 + float(abs(self.values).max()))) ** 2

    def seed_effects(
        self, rows: Sequence[int], base: Mapping[int, float], noise: float
    ) -> tuple[list[float], float]:
        """The mean score of rows by seed, and the part of its variance that is their noise.

        Args:
            rows: without base.
            base: its scores by seed, to which the differences are added again.
            noise: variance of a row.
        """
        present = self.present[rows]
        means = (self.values[rows] * present).sum(axis=1) / present.sum(axis=1)
        centered = (self.values[rows] - means[:, None]) * present
        effects, of_rows = [], []
        for column, seed in enumerate(self.seeds):
            count = float(present[:, column].sum())
            if count:
                effects.append(base[seed] + float(centered[:, column].sum()) / count)
                of_rows.append(noise / count)
        return effects, statistics.fmean(of_rows)

    def variances(self, kept: Sequence[int]) -> list[Variance]:
        """Variance of each row around the effects of the seeds, fitted to the rows `kept`."""
        import numpy as np

        share = self.present / self.present.sum(axis=1, keepdims=True)
        centered = (self.values - (self.values * share).sum(axis=1, keepdims=True)) * self.present
        # The effects of the rows are eliminated: the normal equations of the seeds remain, singular
        # by a constant.
        present = self.present[kept]
        normal = np.diag(present.sum(axis=0)) - present.T @ share[kept]
        # A constant added to all seeds is absorbed by the rows, so the matrix has no inverse; the
        # pseudo-inverse leaves that constant out, and the seeds of no row kept, if base is apart.
        inverse = np.linalg.pinv(normal, hermitian=True)
        effects = inverse @ centered[kept].sum(axis=0)
        residuals = (centered - effects + (share @ effects)[:, None]) * self.present
        quadratic = np.einsum("rs,st,rt->r", share, inverse, share)[:, None]
        cross = np.diag(inverse) - 2 * share @ inverse + quadratic
        # 1 - leverage of each cell: the part of its variance that the fit leaves in the residual.
        rest = (self.present - share - cross * self.present).sum(axis=1)
        squares = (residuals**2).sum(axis=1)
        variances = []
        for row, n in enumerate(self.present.sum(axis=1).astype(int).tolist()):
            # The fit does not contain a row that is apart, so its residuals lose only its own mean.
            divisor, value = rest[row] if row in kept else n - 1, 0.0
            if squares[row] >= self.resolution * n:
                value = float(squares[row] / divisor)
            variances.append(Variance(value, n - 1))
        return variances
