"""One row compared with base: scores, noise of their mean difference, and its tests."""

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

_SMALLEST_P = 1e-15  # smaller p values are not told apart


@dataclass(frozen=True)
class PairedScores:
    """Scores of a row and of base in one metric, paired by seed.

    differences: row - base by seed, for the seeds that both have.
    resamples: scores of the row and of base on the resampled test sets, by seed; empty without
        them.
    diverged, base_diverged: number of seeds with which the row and base diverged.
    ended, base_ended: number of seeds with which the row and base have ended: scored or diverged.
    pending: number of the row's seeds that have not ended.
    same_training: whether the row evaluates base's trainings in another way; its noise is unlike
        that of other rows.
    base: base's scores, where it has seeds that no row has.
    shift: what these further seeds have added to each difference.
    least: the smallest mean difference that can be, of scores that are not below 0: less base's
        mean.
    base_label: of base, in a study that has several. Rows share the noise of seeds with the rows of
        their base alone.
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
    least: float = -math.inf
    base_label: str = ""

    @property
    def n(self) -> int:
        """Number of seeds with a difference."""
        return len(self.differences)

    @property
    def mean(self) -> float | None:
        """Mean difference over these seeds; None without any."""
        return statistics.fmean(self.differences.values()) if self.differences else None

    @property
    def is_constant_zero(self) -> bool:
        """Whether the row has base's scores, as one that differs in a setting without effect."""
        return not any(self.differences.values())

    @property
    def shows_noise(self) -> bool:
        """Whether the row's seeds tell how much a difference varies."""
        return self.n > 1 and not self.is_constant_zero


@dataclass(frozen=True)
class Noise:
    """Noise of a mean: the variance of one seed, in independent parts, and of the sentences."""

    seeds: tuple[Variance, ...]
    sentences: float = 0.0

    def error(self, n: int) -> float:
        """Standard error of the mean over n seeds."""
        return math.sqrt(sum(part.value for part in self.seeds) / n + self.sentences)

    def half_width(self, level: float, n: int, more: float = 1.0) -> float:
        """Half of the interval of the mean over n seeds: the smallest mean that is significant at
        this level.

        Its square is the sum of t^2 variance over components, each with its own t. The coverage of
        such an interval is at least 1 - level; that of Satterthwaite's approximation is smaller
        with one or two degrees of freedom.

        Source: Banerjee, "On Confidence Interval for Two-Means Problem Based on Separate Estimates
            of Variances and Tabulated Values of t-Table", Sankhya A (1961).

        Args:
            level: of the two-sided test.
            n: number of seeds.
            more: factor of the degrees of freedom, for a number of seeds that was not run.
        """
        squares = sum(
            critical_t(level, part.df * more) ** 2 * part.value / n for part in self.seeds
        )
        return math.sqrt(squares + critical_t(level, math.inf) ** 2 * self.sentences)

    def p(self, distance: float, n: int) -> float:
        """Two-sided p value of a mean: the level at which it is half the interval's width."""
        if not distance or not self.error(n):
            return 1.0
        if len(self.seeds) == 1 and not self.sentences:
            return two_sided_p(distance / self.error(n), self.seeds[0].df)
        return _level_at(lambda level: self.half_width(level, n) - abs(distance))


def _level_at(excess: Callable[[float], float]) -> float:
    """The level at which a falling function is zero, to 6 digits, by bisection of its logarithm."""
    low, high = math.log(_SMALLEST_P), 0.0
    if excess(_SMALLEST_P) < 0:
        return _SMALLEST_P
    while high - low > 1e-6:
        middle = (low + high) / 2
        if excess(math.exp(middle)) > 0:
            low = middle
        else:
            high = middle
    return math.exp(high)


@dataclass(frozen=True)
class SeedTest:
    """Test of a mean difference over n seeds, with the noise of seeds and of test sentences in one
    variance.

    std: sample standard deviation of the differences over seeds.
    p: two-sided p value by the variance that the rows share or the row's own, before Holm's
        correction.
    p_own: two-sided p value from the row's own seeds alone.
    level, own_level: the levels that p and p_own must reach.
    low, high: interval of the mean at these levels, at least 95 %: it excludes zero if both are
        reached. The intervals of all rows do not hold simultaneously.
    error: standard error of the mean, by the variance of `p`.
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
class NoiseOfTests:
    """Noise of a mean difference in its two tests: that which the row shares with the others, and
    its own, which is tested at `own_level`.
    """

    shared: Noise
    own: Noise
    own_level: float = LEVEL


@dataclass(frozen=True)
class Comparison:
    """A row with the noise of its mean difference; None if its seeds do not show it."""

    row: PairedScores
    bootstrap: BootstrapTest | None
    noise: NoiseOfTests | None = None

    def p_own(self, distance: float) -> float:
        """P value of a difference of this size from the row's own seeds."""
        return 1.0 if self.noise is None else self.noise.own.p(distance, self.row.n)

    def is_beyond_own_noise(self, mean: float) -> bool:
        """Whether a mean difference passes the test by the row's own seeds."""
        return self.noise is not None and self.p_own(mean) < self.noise.own_level

    def half_width(self, level: float, n: int) -> float:
        """Smallest difference that both tests see with n seeds, at the spread observed."""
        noise = self.noise
        assert noise is not None
        # More seeds would give more degrees of freedom, in proportion.
        more = (n - 1) / (self.row.n - 1)
        own = noise.own.half_width(noise.own_level, n, more)
        return max(noise.shared.half_width(level, n, more), own)

    def detectable(self, level: float, n: int) -> float:
        """True difference that n seeds find with a probability of 80 %, at the spread observed with
        `row.n`: the smallest significant mean, and the 80 % quantile of t standard errors more.
        """
        assert self.noise is not None
        beyond = critical_t(2 * (1 - POWER), n - 1)
        return self.half_width(level, n) + beyond * self.noise.shared.error(n)

    def p_for_holm(self, metric: Metric) -> float:
        """P value of the row in Holm's correction.

        A row that diverges more often than base gains nothing from the seeds with which it trains:
        it is tested for being worse by its scores, and by the number of its divergences. A row
        compared with a base that diverges more often is only tested for being better.
        """
        row, mean = self.row, self.row.mean
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
        if mean is not None and not self.is_beyond_own_noise(mean):
            p = 1.0
        p_diverged = 1.0
        if row.base_ended:
            p_diverged = fisher_p(row.diverged, row.ended, row.base_diverged, row.base_ended)
        return min(1.0, 2 * min(p, p_diverged))  # two tests of one row

    def p_equivalent(self, margin: float) -> tuple[float, float]:
        """P values of two one-sided tests that the difference is at least the margin: shared
        variance, own variance.

        Source: Schuirmann, "A Comparison of the Two One-Sided Tests Procedure and the Power
            Approach", J. Pharmacokinetics and Biopharmaceutics (1987).
        """
        row, mean = self.row, self.row.mean
        if self.noise is None or mean is None or row.diverged or row.base_diverged:
            return 1.0, 1.0
        # The nearer of the two limits decides: the test against the other has a smaller p value.
        distance = margin - abs(mean)
        if distance <= 0:
            return 1.0, 1.0
        return self.noise.shared.p(distance, row.n) / 2, self.p_own(distance) / 2

    def seed_test(self, level: float) -> SeedTest:
        """Test the mean; `level` is that of the shared variance."""
        row, mean = self.row, self.row.mean
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
        """Seeds to add until a difference as large as the observed mean is found with a
        probability of 80 %, at the observed spread; None if a study cannot have as many.
        """
        assert self.row.mean is not None
        size, n = abs(self.row.mean), self.row.n
        enough = fewest_seeds(n, lambda more: self.detectable(level, more) <= size)
        return None if enough is None else enough - n


def compare(rows: Sequence[PairedScores], level: float) -> list[Comparison]:
    """Each row with its noise, which the rows of one base share; that of rows with base's trainings
    is estimated apart.
    """
    pools: dict[str, list[PairedScores]] = {}
    for row in rows:
        if row.shows_noise and not row.same_training:
            pools.setdefault(row.base_label, []).append(row)
    noises = {}
    for label, pool in pools.items():
        noises[label] = seed_noise([row.differences for row in pool], pool[0].base)
    compared, places = [], Counter[str]()  # in the noise; base has the first place
    for row in rows:
        if not row.shows_noise:
            compared.append(Comparison(row, _bootstrap(row)))
        elif row.same_training:
            compared.append(_with_noise(row, seed_noise([row.differences]), 1, level))
        else:
            places[row.base_label] += 1
            place = places[row.base_label]
            compared.append(_with_noise(row, noises[row.base_label], place, level))
    return compared


def _with_noise(row: PairedScores, noise: SeedNoise, index: int, level: float) -> Comparison:
    row = _with_further_seeds(row, noise)
    bootstrap, sentences = _bootstrap(row), 0.0
    if bootstrap is not None:
        sentences = bootstrap.std**2
    shared, own = noise.of_difference(index, row.n), noise.own_of_difference(index, row.n)
    # No spread at all is no knowledge of the noise over seeds, whatever the test sentences say.
    if not any(part.value for part in shared):
        return Comparison(row, bootstrap)
    # Rows unlike the others cast doubt on the pool, so each makes the second test stricter.
    own_level = level / (1 + len(noise.apart))
    of_tests = NoiseOfTests(Noise(shared, sentences), Noise(own, sentences), own_level)
    return Comparison(row, bootstrap, of_tests)


def _with_further_seeds(row: PairedScores, noise: SeedNoise) -> PairedScores:
    """The row compared with base's mean over all of base's seeds, each with its weight."""
    weight = noise.weight(row.n)
    if row.base is None or not weight:
        return row
    over_shared = statistics.fmean(row.base.shared[seed] for seed in row.differences)
    shift = weight * (over_shared - statistics.fmean(row.base.further.values()))
    differences = {seed: value + shift for seed, value in row.differences.items()}
    return replace(row, differences=differences, shift=shift)


def _bootstrap(row: PairedScores) -> BootstrapTest | None:
    """Bootstrap of the mean; None unless all seeds with a difference have resamples."""
    if not row.differences or row.resamples.keys() != row.differences.keys():
        return None
    assert row.mean is not None
    return paired_bootstrap(row.mean, list(row.resamples.values()))
