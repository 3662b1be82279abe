"""Compare a row with base: their scores, the noise of the mean difference, and its tests."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablate.stats.bootstrap import BootstrapTest, paired_bootstrap
from ablate.stats.distributions import critical_t, two_sided_p
from ablate.stats.metrics import Metric
from ablate.stats.noise import BaseScores, SeedNoise, Variance, seed_noise
from ablate.stats.power import fewest_seeds
from ablate.stats.significance import LEVEL, POWER, fisher_p

_SMALLEST_P = 1e-15  # smaller p values are reported as this one


@dataclass(frozen=True)
class PairedScores:
    """Scores of a row and of base in one metric, paired by seed.

    differences: row - base, by seed, for the seeds with a score of both.
    resamples: scores of the row and of base on the resampled test sets, by seed; empty if they are
        unknown.
    diverged, base_diverged: number of diverged seeds of the row and of base.
    ended, base_ended: number of scored or diverged seeds of the row and of base.
    pending: number of the row's seeds that have not ended.
    same_training: whether the row evaluates base's trainings in another way. The noise of such a
        row is estimated separately.
    base: base's scores if base has seeds that no row has, else None.
    shift: the change of each difference by these further seeds of base.
    lower_bound: the smallest possible mean difference. Scores that are never negative give minus
        base's mean, other scores minus infinity.
    base_label: the label of base, in a study with several bases. Rows with the same base share the
        noise of seeds.
    """

    differences: Mapping[int, float] = field(default_factory=dict)
    resamples: Mapping[int, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    diverged: int = 0
    base_diverged: int = 0
    ended: int = 0
    base_ended: int = 0
    pending: int = 0
    same_training: bool = False
    base: BaseScores | None = None
    shift: float = 0.0
    lower_bound: float = -math.inf
    base_label: str = ""

    @property
    def n(self) -> int:
        """Number of seeds with a difference."""
        return len(self.differences)

    @property
    def mean(self) -> float | None:
        """Mean difference over these seeds; None without a seed."""
        return statistics.fmean(self.differences.values()) if self.differences else None

    @property
    def is_constant_zero(self) -> bool:
        """Whether every score equals base's, as after a change of a setting without effect."""
        return not any(self.differences.values())

    @property
    def shows_noise(self) -> bool:
        """Whether the row's seeds give an estimate of the variance."""
        return self.n > 1 and not self.is_constant_zero


@dataclass(frozen=True)
class Noise:
    """Noise of a mean difference.

    seeds: independent components of the variance of a single seed's difference.
    sentences: variance of the mean difference over test sentences.
    """

    seeds: tuple[Variance, ...]
    sentences: float = 0.0

    def error(self, n: int) -> float:
        """Standard error of the mean over n seeds."""
        return math.sqrt(sum(variance.value for variance in self.seeds) / n + self.sentences)

    def half_width(self, level: float, n: int, df_factor: float = 1.0) -> float:
        """Half of the width of the confidence interval of the mean over n seeds. A larger mean is
        significant at this level.

        The square of the half width is the sum of t^2 variance over the components, with the
        critical t of each. The coverage of this interval is at least 1 - level. Satterthwaite's
        approximation covers less with one or two degrees of freedom.

        Source: Banerjee, "On Confidence Interval for Two-Means Problem Based on Separate Estimates
            of Variances and Tabulated Values of t-Table", Sankhya A (1961).

        Args:
            level: of the two-sided test.
            n: number of seeds.
            df_factor: factor of the degrees of freedom, to extrapolate to another number of seeds.
        """
        squares = 0.0
        for variance in self.seeds:
            t = critical_t(level, variance.df * df_factor)
            squares += t**2 * variance.value / n
        return math.sqrt(squares + critical_t(level, math.inf) ** 2 * self.sentences)

    def p(self, distance: float, n: int) -> float:
        """Two-sided p value of a mean at this distance from 0: the level with this half width."""
        if not distance or not self.error(n):
            return 1.0
        if len(self.seeds) == 1 and not self.sentences:
            return two_sided_p(distance / self.error(n), self.seeds[0].df)
        return _level_at(lambda level: self.half_width(level, n) - abs(distance))


def _level_at(excess: Callable[[float], float]) -> float:
    """The level at which a decreasing function is zero, to 6 digits, by bisection of log(level)."""
    if excess(_SMALLEST_P) < 0:
        return _SMALLEST_P
    low = math.log(_SMALLEST_P)
    high = 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if excess(math.exp(middle)) > 0:
            low = middle
        else:
            high = middle
    return math.exp(high)


@dataclass(frozen=True)
class SeedTest:
    """Test of a mean difference over n seeds. Its variance is the sum of the noise of seeds and of
    test sentences.

    std: sample standard deviation of the differences over seeds.
    p: two-sided p value with the larger of the pooled variance and the row's own, before Holm's
        correction.
    p_own: two-sided p value with the variance of the row's own seeds.
    level, own_level: the levels of the two tests.
    low, high: confidence interval of the mean, at 95 % or more: it excludes zero exactly if both p
        values are below their levels. The intervals of several rows are not simultaneous.
    error: standard error of the mean in the test of `p`.
    """

    std: float
    p: float
    p_own: float
    level: float
    own_level: float
    low: float
    high: float
    error: float


@dataclass(frozen=True)
class DifferenceNoise:
    """Noise of a mean difference in its two tests.

    shared: pooled over the rows.
    own: of the row's seeds alone, for the test at `own_level`.
    """

    shared: Noise
    own: Noise
    own_level: float = LEVEL


@dataclass(frozen=True)
class Comparison:
    """A row with the noise of its mean difference, and its tests.

    bootstrap: None without scores on the resampled test sets.
    noise: None if the seeds of the row do not show any.
    """

    row: PairedScores
    bootstrap: BootstrapTest | None
    noise: DifferenceNoise | None = None

    def p_own(self, distance: float) -> float:
        """P value of a difference of this size, with the variance of the row's own seeds."""
        return 1.0 if self.noise is None else self.noise.own.p(distance, self.row.n)

    def passes_own_test(self, mean: float) -> bool:
        """Whether a mean difference is significant with the variance of the row's own seeds."""
        return self.noise is not None and self.p_own(mean) < self.noise.own_level

    def half_width(self, level: float, n: int) -> float:
        """Smallest mean difference that is significant in both tests with n seeds, if the spread
        stays as observed.
        """
        noise = self.noise
        assert noise is not None
        # The degrees of freedom grow in proportion to n - 1.
        df_factor = (n - 1) / (self.row.n - 1)
        shared = noise.shared.half_width(level, n, df_factor)
        own = noise.own.half_width(noise.own_level, n, df_factor)
        return max(shared, own)

    def detectable_difference(self, level: float, n: int) -> float:
        """True difference that n seeds find with a power of 80 %, if the spread stays as observed.

        It is the smallest significant mean plus t standard errors, where t is the 80 % quantile of
        Student's distribution.
        """
        assert self.noise is not None
        t = critical_t(2 * (1 - POWER), n - 1)
        return self.half_width(level, n) + t * self.noise.shared.error(n)

    def p_uncorrected(self, metric: Metric) -> float:
        """P value of the row before Holm's correction.

        The scores give it, unless the numbers of divergences differ. A row that diverges more often
        than base cannot be better: it is tested for worse scores and for more divergences, with
        Bonferroni's correction for the two. A row that diverges less often than base is tested for
        better scores alone.
        """
        row = self.row
        mean = row.mean
        p = 1.0
        if self.noise is not None and mean is not None:
            p = self.noise.shared.p(mean, row.n)
        if row.diverged == row.base_diverged:
            return p
        diverges_more = row.diverged > row.base_diverged
        if mean is not None and metric.is_better(mean) == diverges_more:
            p = 1.0
        if not diverges_more:
            return p
        if mean is not None and not self.passes_own_test(mean):
            p = 1.0
        p_diverged = 1.0
        if row.base_ended:
            p_diverged = fisher_p(row.diverged, row.ended, row.base_diverged, row.base_ended)
        return min(1.0, 2 * min(p, p_diverged))

    def equivalence_p_values(self, margin: float) -> tuple[float, float]:
        """P values of the equivalence test (two one-sided tests) within a margin: with the shared
        variance, and with the row's own.

        Source: Schuirmann, "A Comparison of the Two One-Sided Tests Procedure and the Power
            Approach", J. Pharmacokinetics and Biopharmaceutics (1987).
        """
        row = self.row
        mean = row.mean
        if self.noise is None or mean is None or row.diverged or row.base_diverged:
            return 1.0, 1.0
        # Of the two one-sided tests, the one against the nearer limit has the larger p value.
        distance = margin - abs(mean)
        if distance <= 0:
            return 1.0, 1.0
        return self.noise.shared.p(distance, row.n) / 2, self.p_own(distance) / 2

    def seed_test(self, level: float) -> SeedTest:
        """Test the mean difference; `level` is the level of the test with the shared variance."""
        row = self.row
        mean = row.mean
        assert self.noise is not None
        assert mean is not None
        half = self.half_width(level, row.n)
        return SeedTest(
            std=statistics.stdev(row.differences.values()),
            p=self.noise.shared.p(mean, row.n),
            p_own=self.p_own(mean),
            level=level,
            own_level=self.noise.own_level,
            low=mean - half,
            high=mean + half,
            error=self.noise.shared.error(row.n),
        )

    def more_seeds(self, level: float) -> int | None:
        """Number of seeds to add so that a true difference as large as the observed mean is found
        with a power of 80 %; None if a study cannot have so many.
        """
        assert self.row.mean is not None
        size = abs(self.row.mean)

        def is_enough(seeds: int) -> bool:
            return self.detectable_difference(level, seeds) <= size

        needed = fewest_seeds(self.row.n, is_enough)
        return None if needed is None else needed - self.row.n


def compare(rows: Sequence[PairedScores], level: float) -> list[Comparison]:
    """Compare each row with its base.

    The rows of a base share the noise of seeds. The noise of a row that evaluates base's trainings
    in another way is estimated separately.
    """
    pools: dict[str, list[PairedScores]] = {}
    for row in rows:
        if row.shows_noise and not row.same_training:
            pools.setdefault(row.base_label, []).append(row)
    noises = {}
    for label, pool in pools.items():
        noises[label] = seed_noise([row.differences for row in pool], pool[0].base)
    comparisons = []
    last_index = Counter[str]()  # in the noise, where base has index 0
    for row in rows:
        if not row.shows_noise:
            comparisons.append(Comparison(row, _bootstrap(row)))
        elif row.same_training:
            comparisons.append(_comparison(row, seed_noise([row.differences]), 1, level))
        else:
            last_index[row.base_label] += 1
            index = last_index[row.base_label]
            comparisons.append(_comparison(row, noises[row.base_label], index, level))
    return comparisons


def _comparison(row: PairedScores, noise: SeedNoise, index: int, level: float) -> Comparison:
    """Compare a row with base; `index` is the row's in the noise of seeds."""
    row = _shifted_by_further_seeds(row, noise)
    bootstrap = _bootstrap(row)
    sentences = 0.0
    if bootstrap is not None:
        sentences = bootstrap.std**2
    shared = noise.shared_variances(index, row.n)
    # Without any spread, the noise of seeds is unknown, also if the noise of sentences is known.
    if not any(variance.value for variance in shared):
        return Comparison(row, bootstrap)
    own = noise.own_variances(index, row.n)
    # Each outlier row casts doubt on the pooled variance, so it makes the second test stricter.
    own_level = level / (1 + len(noise.outliers))
    difference_noise = DifferenceNoise(Noise(shared, sentences), Noise(own, sentences), own_level)
    return Comparison(row, bootstrap, difference_noise)


def _shifted_by_further_seeds(row: PairedScores, noise: SeedNoise) -> PairedScores:
    """Compare the row with the weighted mean over all seeds of base: shift its differences."""
    weight = noise.weight(row.n)
    if row.base is None or not weight:
        return row
    shared_mean = statistics.fmean(row.base.shared[seed] for seed in row.differences)
    shift = weight * (shared_mean - statistics.fmean(row.base.further.values()))
    differences = {seed: value + shift for seed, value in row.differences.items()}
    return replace(row, differences=differences, shift=shift)


def _bootstrap(row: PairedScores) -> BootstrapTest | None:
    """Paired bootstrap of the mean; None if a seed with a difference has no resampled scores."""
    if not row.differences or row.resamples.keys() != row.differences.keys():
        return None
    assert row.mean is not None
    return paired_bootstrap(row.mean, list(row.resamples.values()))
