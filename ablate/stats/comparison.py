"""Compare a row with base: their scores, the noise of the mean difference, and its tests."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ablate.stats.bootstrap import BootstrapTest, paired_bootstrap
from ablate.stats.distributions import critical_t, two_sided_p
from ablate.stats.metrics import Interval, Metric
from ablate.stats.noise import BaseScores, SeedNoise, Variance, seed_noise
from ablate.stats.power import fewest_seeds
from ablate.stats.significance import LEVEL, POWER, fisher_p

_SMALLEST_P = 1e-15  # smaller p values are reported as this one


@dataclass(frozen=True)
class PairedScores:
    """Scores of a row and of base in one metric, paired by seed.

    differences: row - base, by seed, for the seeds with a score of both. Without paired runs, the
        seeds only count the runs, so that a single difference has no meaning, but their mean does.
    resamples: scores of the row and of base on the resampled test sets, by seed; empty if they are
        unknown.
    diverged, base_diverged: number of diverged seeds of the row and of base.
    unpaired: number of the row's seeds that ended without a difference and without diverging: a
        score of the row or of base is missing. The row's other ended seeds have a difference or
        diverged, so ended = n + unpaired + diverged.
    base_ended: number of base's seeds that ended, by a score or by divergence.
    base_pending: number of base's seeds that have not ended.
    pending: number of the row's seeds that have not ended.
    same_training: whether the row reuses base's trained models and differs only in how they are
        evaluated, such as in the beam size. The noise of such a row is estimated separately.
    base_scores: base's scores, if base has seeds that no row has or if runs are unpaired; else
        None.
    shift: number that was added to each difference, because base's mean also counts the seeds that
        no row has: their weight times (base's mean over the row's seeds - base's mean over the
        further seeds).
    possible: the smallest and the largest possible mean difference.
    base_label: the label of base, in a study with several bases. Rows with the same base share one
        estimate of the noise of seeds.
    """

    differences: Mapping[int, float] = field(default_factory=dict)
    resamples: Mapping[int, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    diverged: int = 0
    base_diverged: int = 0
    unpaired: int = 0
    base_ended: int = 0
    base_pending: int = 0
    pending: int = 0
    same_training: bool = False
    base_scores: BaseScores | None = None
    shift: float = 0.0
    possible: Interval = (-math.inf, math.inf)
    base_label: str = ""

    @property
    def n(self) -> int:
        """Number of seeds with a difference."""
        return len(self.differences)

    @property
    def ended(self) -> int:
        """Number of the row's seeds that ended, by a score or by divergence."""
        return self.n + self.unpaired + self.diverged

    @property
    def mean(self) -> float | None:
        """Mean of the differences; None without a difference."""
        return statistics.fmean(self.differences.values()) if self.differences else None

    @property
    def is_paired(self) -> bool:
        """Whether the row and base are paired by seed."""
        return self.base_scores is None or self.base_scores.is_paired

    @property
    def is_constant_zero(self) -> bool:
        """Whether every score equals base's score, as after a change that has no effect; true
        without a difference. Unpaired scores tell this only if all of them are equal.
        """
        base = self.base_scores
        if base is not None and not base.is_paired and len({*base.common.values()}) > 1:
            return not self.differences
        return not any(self.differences.values())

    @property
    def shows_noise(self) -> bool:
        """Whether a variance can be estimated from the row's seeds."""
        return self.n > 1 and not self.is_constant_zero


@dataclass(frozen=True)
class Noise:
    """Noise of a mean difference.

    seeds: variance of the difference of a single seed, as a sum of independent components.
    sentences: variance of the mean difference over test sentences.
    """

    seeds: tuple[Variance, ...]
    sentences: float = 0.0

    def error(self, n: int) -> float:
        """Standard error of the mean over n seeds."""
        return math.sqrt(sum(variance.value for variance in self.seeds) / n + self.sentences)

    def half_width(self, level: float, n: int, df_factor: float = 1.0) -> float:
        """Half width of the confidence interval of the mean over n seeds. A mean is significant at
        this level if its absolute value is larger than the half width.

        The half width is sqrt(sum of t_i^2 v_i / n + z^2 v_s), with the variance v_i of each
        component over seeds, its critical value t_i, and the variance v_s over test sentences. The
        interval covers the true difference with a probability of at least 1 - level. The interval
        by Satterthwaite's approximation covers less where a component has one or two degrees of
        freedom.

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
        """Two-sided p value of a mean at this distance from 0: the level at which `half_width`
        equals the distance.
        """
        # Without an estimate of the noise, no difference is significant.
        if not distance or not self.error(n):
            return 1.0
        if len(self.seeds) == 1 and not self.sentences:
            return two_sided_p(distance / self.error(n), self.seeds[0].df)
        return _level_at(lambda level: self.half_width(level, n) - abs(distance))


def _level_at(excess: Callable[[float], float]) -> float:
    """The level at which a decreasing function is zero, to 6 digits, by bisection of log(level)."""
    # As scipy.optimize.brentq, but scipy is no dependency.
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
    p: two-sided p value in the pooled test, before Holm's correction.
    p_own: two-sided p value in the row's own test.
    level, own_level: levels of the two tests.
    low, high: confidence interval of the mean: it excludes zero exactly if both p values are below
        their levels. Each interval covers the true difference with a probability of at least 95 %;
        several rows have no joint coverage.
    error: standard error of the mean in the pooled test.
    """

    std: float
    p: float
    p_own: float
    level: float
    own_level: float
    low: float
    high: float
    error: float


class PValues(NamedTuple):
    """P values of one hypothesis about a mean difference, in the two tests of a verdict."""

    pooled: float
    own: float


@dataclass(frozen=True)
class DifferenceNoise:
    """Noise of a mean difference in the two tests of a verdict.

    pooled: variance over seeds pooled over the rows, for the pooled test.
    own: variance over the row's own seeds, for the row's own test.
    own_level: level of the row's own test.
    """

    pooled: Noise
    own: Noise
    own_level: float = LEVEL


@dataclass(frozen=True)
class ScoreComparison:
    """A row with the noise of its mean difference, and its tests.

    bootstrap: None without scores on the resampled test sets.
    noise: None if the seeds of the row show no noise.
    """

    row: PairedScores
    bootstrap: BootstrapTest | None
    noise: DifferenceNoise | None = None

    def p_values(self, distance: float) -> PValues:
        """P values of a mean difference at this distance from 0; 1 without noise."""
        if self.noise is None:
            return PValues(1.0, 1.0)
        n = self.row.n
        return PValues(self.noise.pooled.p(distance, n), self.noise.own.p(distance, n))

    @property
    def passes_own_test(self) -> bool:
        """Whether the mean difference is significant in the row's own test."""
        if self.noise is None or self.row.mean is None:
            return False
        return self.p_values(self.row.mean).own < self.noise.own_level

    def half_width(self, level: float, n: int) -> float:
        """Half width of the confidence interval with n seeds, if the spread over seeds stays as
        observed: the larger one of the two tests, so that a mean beyond it is significant in both.
        `level` is the level of the pooled test.
        """
        noise = self.noise
        assert noise is not None
        # The degrees of freedom grow in proportion to n - 1.
        df_factor = (n - 1) / (self.row.n - 1)
        pooled = noise.pooled.half_width(level, n, df_factor)
        own = noise.own.half_width(noise.own_level, n, df_factor)
        return max(pooled, own)

    def detectable_difference(self, level: float, n: int) -> float:
        """True difference that is significant in both tests with a probability of 80 %, with n
        seeds, if the spread over seeds stays as observed.

        The observed mean lies t standard errors or less below the true difference with a
        probability of 80 %, where t is the 80 % quantile of Student's distribution. The quantile
        has n - 1 degrees of freedom, the fewest of the two tests, so that it is not too small.
        """
        assert self.noise is not None
        t = critical_t(2 * (1 - POWER), n - 1)  # two-sided: 2 (1 - 0.8) leaves 20 % on each side
        return self.half_width(level, n) + t * self.noise.pooled.error(n)

    def p_uncorrected(self, metric: Metric) -> float:
        """P value of the pooled test, before Holm's correction. Divergences count as well.

        With as many divergences as base, the scores decide. A row with fewer divergences than base
        cannot be worse, so only better scores count. A row with more divergences than base cannot
        be better. It is worse by its scores or by its divergences: the smaller of the two p values
        counts twice (Bonferroni's correction). Its scores count only if they also pass the row's
        own test, which divergences do not have.
        """
        row = self.row
        mean = row.mean
        p_scores = 1.0
        is_better = False
        if mean is not None:
            p_scores = self.p_values(mean).pooled
            is_better = metric.is_better(mean)
        if row.diverged == row.base_diverged:
            return p_scores
        if row.diverged < row.base_diverged:
            return p_scores if is_better else 1.0
        if is_better or not self.passes_own_test:
            p_scores = 1.0
        p_divergences = 1.0
        if row.base_ended:
            p_divergences = fisher_p(row.diverged, row.ended, row.base_diverged, row.base_ended)
        return min(1.0, 2 * min(p_scores, p_divergences))

    def equivalence(self, margin: float | None) -> PValues:
        """P values of the equivalence test (two one-sided tests) within a margin; 1 without a
        margin, and with a divergence of the row or of base.

        Source: Schuirmann, "A Comparison of the Two One-Sided Tests Procedure and the Power
            Approach", J. Pharmacokinetics and Biopharmaceutics (1987).
        """
        row = self.row
        if margin is None or row.mean is None or row.diverged or row.base_diverged:
            return PValues(1.0, 1.0)
        # Of the two one-sided tests, the one against the nearer limit has the larger p value.
        distance = margin - abs(row.mean)
        if self.noise is None or distance <= 0:
            return PValues(1.0, 1.0)
        two_sided = self.p_values(distance)
        return PValues(two_sided.pooled / 2, two_sided.own / 2)

    def seed_test(self, level: float) -> SeedTest | None:
        """Test the mean difference at the level of the pooled test; None without noise."""
        row = self.row
        if self.noise is None or row.mean is None:
            return None
        half_width = self.half_width(level, row.n)
        p_values = self.p_values(row.mean)
        return SeedTest(
            std=self._std_over_seeds,
            p=p_values.pooled,
            p_own=p_values.own,
            level=level,
            own_level=self.noise.own_level,
            low=row.mean - half_width,
            high=row.mean + half_width,
            error=self.noise.pooled.error(row.n),
        )

    @property
    def _std_over_seeds(self) -> float:
        """Standard deviation of a difference over seeds. Without paired runs, it is the root of the
        sum of the two variances.
        """
        if not self.row.is_paired:
            assert self.noise is not None
            return math.sqrt(sum(variance.value for variance in self.noise.own.seeds))
        return statistics.stdev(self.row.differences.values())

    def more_seeds(self, level: float) -> int | None:
        """Number of seeds to add so that a true difference as large as the observed mean is found
        with a power of 80 %; None if more seeds are needed than a study can have.
        """
        assert self.row.mean is not None
        size = abs(self.row.mean)

        def is_enough(seeds: int) -> bool:
            return self.detectable_difference(level, seeds) <= size

        needed = fewest_seeds(self.row.n, is_enough)
        return None if needed is None else needed - self.row.n


def compare(rows: Sequence[PairedScores], level: float) -> list[ScoreComparison]:
    """Compare each row with its base.

    The rows of one base share an estimate of the noise of seeds. A row that only evaluates base's
    trained models differently has an estimate by itself.
    """
    # Positions of the rows that share an estimate, by base and, for a separate row, its position.
    groups: dict[tuple[str, int | None], list[int]] = {}
    for position, row in enumerate(rows):
        if row.shows_noise:
            group = (row.base_label, position if row.same_training else None)
            groups.setdefault(group, []).append(position)
    compared: dict[int, ScoreComparison] = {}
    for (_, separate), positions in groups.items():
        base = rows[positions[0]].base_scores if separate is None else None
        noise = seed_noise([rows[position].differences for position in positions], base)
        for index, position in enumerate(positions, 1):  # index 0 of `noise` is base
            compared[position] = _comparison(rows[position], noise, index, level)
    return [
        compared.get(position) or ScoreComparison(row, _bootstrap(row))
        for position, row in enumerate(rows)
    ]


def _comparison(row: PairedScores, noise: SeedNoise, index: int, level: float) -> ScoreComparison:
    """Compare a row with base.

    Args:
        row: the row.
        noise: noise of seeds of the row, of base, and of the other rows.
        index: index of the row in `noise`.
        level: of the tests together with those of all other rows.
    """
    row = _shifted_by_further_seeds(row, noise)
    bootstrap = _bootstrap(row)
    sentences = 0.0
    if bootstrap is not None:
        sentences = bootstrap.std**2
    pooled = noise.pooled_components(index, row.n)
    # Without any spread, the noise of seeds is unknown, even if the noise of sentences is known.
    if not any(variance.value for variance in pooled):
        return ScoreComparison(row, bootstrap)
    own = noise.own_components(index, row.n)
    # Each outlier row casts doubt on the pooled variance, so it makes the row's own test stricter.
    own_level = level / (1 + len(noise.outliers))
    difference_noise = DifferenceNoise(Noise(pooled, sentences), Noise(own, sentences), own_level)
    return ScoreComparison(row, bootstrap, difference_noise)


def _shifted_by_further_seeds(row: PairedScores, noise: SeedNoise) -> PairedScores:
    """Compare the row with the weighted mean over all seeds of base.

    With weight w of the further seeds, base's mean changes from `common` to
    (1 - w) common + w further. Therefore row - base grows by w (common - further).
    """
    weight = noise.weight(row.n)
    base = row.base_scores
    if base is None or not weight:
        return row
    common = statistics.fmean(base.common[seed] for seed in row.differences)
    further = statistics.fmean(base.further.values())
    shift = weight * (common - further)
    differences = {seed: value + shift for seed, value in row.differences.items()}
    return replace(row, differences=differences, shift=shift)


def _bootstrap(row: PairedScores) -> BootstrapTest | None:
    """Paired bootstrap of the mean; None if a seed with a difference has no resampled scores."""
    if not row.differences or row.resamples.keys() != row.differences.keys():
        return None
    assert row.mean is not None
    return paired_bootstrap(row.mean, list(row.resamples.values()))
