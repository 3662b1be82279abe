"""Noise of the seeds: the variance of each row, and the variance pooled over the rows, in the
two-way layout row x seed.

The model of a score is: effect of the row + effect of the seed + noise. Rows are compared with base
on the same seeds, so the effect of the seed cancels in a difference from base. Further seeds of
base make its mean more precise; they help less if the effect of the seed is large. Runs of other
code without seeds are unpaired: no effect of a seed is fitted.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.stats.distributions import f_tail

OUTLIER_LEVEL = 0.05  # level, over all rows, of the test whether a row is noisier than the others

Differences = Mapping[int, float]  # row - base, by seed


@dataclass(frozen=True)
class Variance:
    """An estimated variance, with its degrees of freedom."""

    value: float
    df: float


@dataclass(frozen=True)
class BaseScores:
    """Scores of base, by seed.

    common: of the seeds that rows have as well.
    further: of the seeds that no row has.
    is_paired: whether runs with the same seed share the effect of the seed. Otherwise the seeds
        only count the runs of each row.
    """

    common: Mapping[int, float]
    further: Mapping[int, float]
    is_paired: bool = True


@dataclass(frozen=True)
class FurtherSeeds:
    """Estimates from the seeds that only base has.

    scores: scores of base with these seeds, two or more; any number without paired runs.
    seed_effect: variance of the effect of the seed, which is the same for rows and base; 0 without
        paired runs.
    base: variance of base's noise, from all seeds of base.
    """

    scores: tuple[float, ...]
    seed_effect: float
    base: Variance

    def weight(self, n: int, noise: float) -> float:
        """Weight of the further seeds in base's mean that minimizes the variance of a difference.

        Args:
            n: number of seeds that the row and base have in common.
            noise: variance of base's noise.
        """
        k = len(self.scores)
        ratio = self.seed_effect / noise if noise else math.inf
        return k / ((n + k) * (1 + ratio))


@dataclass(frozen=True)
class SeedNoise:
    """Variances of a single score over seeds. Rows have an index from 1; base has index 0.

    row_variances: variance of base and of each row, from the residuals of each.
    pooled: mean variance of base and the rows, without outliers.
    outliers: indexes of the rows that are significantly noisier than all others.
    further: estimates from the seeds that only base has; None if there are fewer than two, unless
        runs are unpaired.
    """

    row_variances: tuple[Variance, ...]
    pooled: Variance
    outliers: frozenset[int] = frozenset()
    further: FurtherSeeds | None = None

    def weight(self, n: int) -> float:
        """Weight of base's further seeds in the mean that a row with n seeds is compared with."""
        return self.further.weight(n, self._pooled_value(0)) if self.further else 0.0

    def pooled_components(self, index: int, n: int) -> tuple[Variance, ...]:
        """Variance of the difference between a row and base in the pooled test, for one of n
        seeds, as independent components.

        The row and base each count with the pooled variance, or with their own if it is larger; an
        outlier counts with its own. Base's part is smaller if base has further seeds.
        """
        components = []
        pooled = []
        for row, factor in ((index, 1.0), (0, 1.0 - self.weight(n))):
            value = self._pooled_value(row) * factor
            if row in self.outliers:
                components.append(Variance(value, self.row_variances[row].df))
            else:
                pooled.append(value)
        if pooled:
            components.append(Variance(sum(pooled), self.pooled.df))
        return tuple(components)

    def own_components(self, index: int, n: int) -> tuple[Variance, ...]:
        """Variance of the difference between a row and base in the row's own test, for one of n
        seeds, as independent components: from the residuals of the row and of base.

        If base is noisier than the pooled variance, the row's variance is raised to the pooled
        variance. The reason: base's noise is in all differences, so that among many rows the
        residuals of one row are easily too small by chance.
        """
        row, base = self.row_variances[index], self.row_variances[0]
        value = row.value
        if base.value > self.pooled.value and index not in self.outliers:
            value = max(value, self.pooled.value)
        base_value = base.value * (1.0 - self.weight(n))
        if self.further is None:
            return (Variance(value + base_value, row.df),)
        return (Variance(value, row.df), Variance(base_value, base.df))

    def _pooled_value(self, index: int) -> float:
        """Variance with which a row or base counts in the pooled test."""
        value = self.row_variances[index].value
        return value if index in self.outliers else max(value, self.pooled.value)


def seed_noise(rows: Sequence[Differences], base: BaseScores | None = None) -> SeedNoise:
    """Estimate the variances over seeds from the differences of rows from base.

    Effects of rows and seeds are fitted by least squares; seeds may be missing. A row's variance
    is the sum of its squared residuals, divided by the sum of 1 - leverage. A row is an outlier if
    it is significantly noisier than the pooled variance of all others (F test, with Bonferroni's
    correction over the rows). Outliers are removed one by one, the noisiest first, and the effects
    are fitted again without them.

    Args:
        rows: differences of each row by seed: one row or more, each with two seeds or more.
        base: base's scores, if base has seeds that no row has or if runs are unpaired.
    """
    if base is not None and not base.is_paired:
        return _unpaired_noise(rows, base)
    layout = _Layout(rows)
    pool = list(range(len(rows) + 1))
    while True:
        variances = layout.variances(pool)
        df = max(1.0, sum(variances[row].df for row in pool) - (len(layout.seeds) - 1))
        further = None
        if base is not None:
            further = _further_seeds(layout, pool, variances, base)
        if further is not None:
            if 0 in pool:
                df += further.base.df - variances[0].df
            variances[0] = further.base
        outlier = _outlier(variances, pool, df)
        if outlier is None:
            break
        # One at a time: a very noisy row inflates the pooled variance, which may hide a second one.
        pool.remove(outlier)
    return _noise(variances, pool, df, further)


def _unpaired_noise(rows: Sequence[Differences], base: BaseScores) -> SeedNoise:
    """The variances of unpaired runs. They do not depend on the pool, as no effect is fitted."""
    variances = _unpaired_variances(rows, base)
    further = FurtherSeeds(tuple(base.further.values()), 0.0, variances[0])
    pool = list(range(len(variances)))
    while True:
        df = sum(variances[row].df for row in pool)
        outlier = _outlier(variances, pool, df)
        if outlier is None:
            break
        pool.remove(outlier)
    return _noise(variances, pool, df, further)


def _noise(
    variances: Sequence[Variance], pool: Sequence[int], df: float, further: FurtherSeeds | None
) -> SeedNoise:
    """The noise of the rows; those that are not in the pool are outliers."""
    outliers = frozenset(range(len(variances))).difference(pool)
    return SeedNoise(tuple(variances), Variance(_pooled(variances, pool), df), outliers, further)


def _unpaired_variances(rows: Sequence[Differences], base: BaseScores) -> list[Variance]:
    """Sample variances of base, from all its scores, and of each row."""
    samples = [[*base.common.values(), *base.further.values()]]
    for row in rows:
        samples.append([difference + base.common[seed] for seed, difference in row.items()])
    resolution = _resolution(max(abs(score) for scores in samples for score in scores))
    variances = []
    for scores in samples:
        value = statistics.variance(scores)
        variances.append(Variance(value if value >= resolution else 0.0, len(scores) - 1.0))
    return variances


def _resolution(largest: float) -> float:
    """The smallest variance of scores up to `largest` that is no rounding error of equal scores."""
    return (1e-12 * (1.0 + largest)) ** 2


def _pooled(variances: Sequence[Variance], pool: Sequence[int]) -> float:
    """The mean variance of the rows in the pool, weighted by the degrees of freedom."""
    squares = sum(variances[row].df * variances[row].value for row in pool)
    return squares / sum(variances[row].df for row in pool)


def _further_seeds(
    layout: _Layout, pool: Sequence[int], variances: Sequence[Variance], base: BaseScores
) -> FurtherSeeds | None:
    """Estimate the effect of the seed and base's noise from the seeds that only base has.

    The further scores of base vary by the effect of the seed plus base's noise. The means of the
    rows by seed vary by the effect of the seed (and a known remainder of the rows' noise).
    Therefore the difference of the two variances is a second estimate of base's noise, besides its
    residuals. The two estimates are averaged with their degrees of freedom as weights. The degrees
    of freedom of the second estimate depend on base's noise: it is taken to be the noise of the
    rows, or, if the further scores vary significantly more than that (F test), all of the excess.

    Returns:
        None with fewer than two further scores, or if the rows show no noise.
    """
    scores = tuple(base.further.values())
    rows = [row for row in pool if row != 0]
    noise = 0.0
    if rows:
        noise = _pooled(variances, rows)
    if len(scores) < 2 or not noise:
        return None
    seed_means, remainder = layout.seed_means(rows, base.common, noise)
    n, k = len(seed_means), len(scores)
    effect_by_rows = statistics.variance(seed_means) - remainder
    spread = statistics.variance(scores)
    effect_by_base = spread - noise
    effect = ((n - 1) * effect_by_rows + (k - 1) * effect_by_base) / (n + k - 2)
    # Only the rows give the effect of the seed in the degrees of freedom: a few bad trainings of
    # base would look like a large effect of the seed, and base's noise would seem small.
    nonnegative_effect = max(0.0, effect_by_rows)
    means_variance = nonnegative_effect + remainder
    base_noise = noise
    if f_tail(spread / (means_variance + noise), k - 1, n - 1) < OUTLIER_LEVEL:
        base_noise = spread - means_variance
    # Degrees of freedom: the variance of an estimated variance v is 2 v^2 / df.
    df = base_noise**2 / (
        (base_noise + nonnegative_effect) ** 2 / (k - 1) + means_variance**2 / (n - 1)
    )
    residual = variances[0]
    total_df = residual.df + df
    value = (residual.df * residual.value + df * (spread - effect_by_rows)) / total_df
    return FurtherSeeds(scores, max(0.0, effect), Variance(max(0.0, value), total_df))


def _outlier(variances: Sequence[Variance], pool: Sequence[int], df: float) -> int | None:
    """The noisiest row, if its variance is significantly larger than the mean of the others."""
    noisiest = max(pool, key=lambda row: variances[row].value)
    others = [variances[row].value for row in pool if row != noisiest]
    mean = statistics.fmean(others)
    # Of two rows with different variances, either could be the outlier.
    if len(others) < 2 or not mean:
        return None
    p = f_tail(variances[noisiest].value / mean, variances[noisiest].df, df)
    return noisiest if p < OUTLIER_LEVEL / len(pool) else None


class _Layout:
    """The differences as a matrix of rows x seeds. The first row is base, with zeros."""

    def __init__(self, rows: Sequence[Differences]) -> None:
        import numpy as np

        self.seeds = sorted(set().union(*rows))
        self.values = np.zeros((len(rows) + 1, len(self.seeds)))
        self.present = np.ones_like(self.values)
        for index, row in enumerate(rows, 1):
            for column, seed in enumerate(self.seeds):
                self.values[index, column] = row.get(seed, 0.0)
                self.present[index, column] = seed in row
        self.resolution = _resolution(float(abs(self.values).max()))

    def seed_means(
        self, rows: Sequence[int], base: Mapping[int, float], noise: float
    ) -> tuple[list[float], float]:
        """Mean score of the rows for each seed, and the mean variance of these means due to noise.

        Args:
            rows: indexes of rows, without base.
            base: scores of base by seed, which are added to the differences.
            noise: variance of a score of a row.
        """
        present = self.present[rows]
        means = (self.values[rows] * present).sum(axis=1) / present.sum(axis=1)
        centered = (self.values[rows] - means[:, None]) * present
        seed_means = []
        noise_of_means = []
        for column, seed in enumerate(self.seeds):
            count = float(present[:, column].sum())
            if count:
                seed_means.append(base[seed] + float(centered[:, column].sum()) / count)
                noise_of_means.append(noise / count)
        return seed_means, statistics.fmean(noise_of_means)

    def variances(self, pool: Sequence[int]) -> list[Variance]:
        """Variance of each row around the effects of the seeds, which are fitted to the rows of the
        pool.
        """
        import numpy as np

        share = self.present / self.present.sum(axis=1, keepdims=True)
        centered = (self.values - (self.values * share).sum(axis=1, keepdims=True)) * self.present
        # The normal equations, after the effects of the rows are eliminated.
        present = self.present[pool]
        normal = np.diag(present.sum(axis=0)) - present.T @ share[pool]
        # The rows absorb a constant that is added to all seeds, so the matrix has no inverse. The
        # pseudo-inverse sets to 0 this constant, and the effects of seeds that the pool lacks.
        inverse = np.linalg.pinv(normal, hermitian=True)
        effects = inverse @ centered[pool].sum(axis=0)
        residuals = (centered - effects + (share @ effects)[:, None]) * self.present
        quadratic = np.einsum("rs,st,rt->r", share, inverse, share)[:, None]
        cross = np.diag(inverse) - 2 * share @ inverse + quadratic
        # Sum of 1 - leverage over the cells of each row.
        residual_df = (self.present - share - cross * self.present).sum(axis=1)
        squares = (residuals**2).sum(axis=1)
        variances = []
        for row, n in enumerate(self.present.sum(axis=1).astype(int).tolist()):
            # The effects are fitted without outliers, so an outlier loses one degree of freedom, by
            # its mean.
            divisor = residual_df[row] if row in pool else n - 1
            value = 0.0
            if squares[row] >= self.resolution * n:
                value = float(squares[row] / divisor)
            variances.append(Variance(value, n - 1))
        return variances
