"""Verdict on each row: worse or better than base, as good as base within a margin, or not known.

Two sources of noise are added in one variance: another seed gives another score, and other test sentences give another
score. A row is worse or better if its difference passes two tests:

1. with the variance over seeds that the rows share, or the row's own if that is larger, after Holm's correction over
   all rows of the study; it has many degrees of freedom;
2. with the variance of the row's own seeds alone, uncorrected; it protects rows that are noisier than others.

A study with looks is judged at each of them at a part of the level (`ablate.stats.looks`), and its rows stay settled.
docs/verdict.md gives the formulas, and benchmarks/verdicts.py the error and power of this rule.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

from ablate.config.metrics import Metric
from ablate.config.training import MAX_SEEDS
from ablate.formatting import plural
from ablate.stats.bootstrap import BootstrapTest, paired_bootstrap
from ablate.stats.distributions import critical_t, two_sided_p
from ablate.stats.looks import Look
from ablate.stats.noise import SeedNoise, Variance, seed_noise
from ablate.stats.significance import LEVEL, fisher_p, holm

Word = Literal["worse", "better", "as good as base", "cannot tell", "no difference", "diverged", ""]

_SMALLEST_P = 1e-15  # smaller p values are not told apart


@dataclass(frozen=True)
class PairedScores:
    """Scores of a row and of base in one metric, paired by seed.

    differences: row - base by seed, for the seeds that both have.
    resamples: scores of the row and of base on the resampled test sets, by seed; empty without them.
    diverged, base_diverged: number of seeds with which the row and base diverged.
    ended, base_ended: number of seeds with which the row and base have ended: scored or diverged.
    pending: number of the row's seeds that have not ended.
    same_training: whether the row evaluates base's trainings in another way; its noise is unlike that of other rows.
    """

    differences: Mapping[int, float] = field(default_factory=dict)
    resamples: Mapping[int, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    diverged: int = 0
    base_diverged: int = 0
    ended: int = 0
    base_ended: int = 0
    pending: int = 0
    same_training: bool = False

    @property
    def is_constant_zero(self) -> bool:
        """Whether the row has exactly base's scores, as one that differs only in a setting without effect."""
        return not any(self.differences.values())


@dataclass(frozen=True)
class Noise:
    """Noise of a mean difference: the variance of one seed, in independent parts, and that of the test sentences."""

    seeds: tuple[Variance, ...]
    sentences: float = 0.0

    def error(self, n: int) -> float:
        """Standard error of the mean over n seeds."""
        return math.sqrt(sum(part.value for part in self.seeds) / n + self.sentences)

    def half_width(self, level: float, n: int, more: float = 1.0) -> float:
        """Half of the interval of the mean over n seeds: the smallest mean that is significant at this level.

        Its square is the sum of t^2 variance over the parts, each with its own t. Such an interval never covers the
        mean less often than 1 - level; Satterthwaite's approximation does with one or two degrees of freedom.

        Source: Banerjee, "On Confidence Interval for Two-Means Problem Based on Separate Estimates of Variances and
        Tabulated Values of t-Table", Sankhya A (1961).

        Args:
            level: of the two-sided test.
            n: number of seeds.
            more: factor of the degrees of freedom, for a number of seeds that was not run.
        """
        squares = sum(critical_t(level, part.df * more) ** 2 * part.value / n for part in self.seeds)
        return math.sqrt(squares + critical_t(level, math.inf) ** 2 * self.sentences)

    def p(self, distance: float, n: int) -> float:
        """Two-sided p value of a mean of this size: the level at which it is half the width of the interval."""
        if not distance or not self.error(n):
            return 1.0
        if len(self.seeds) == 1 and not self.sentences:
            return two_sided_p(distance / self.error(n), self.seeds[0].df)
        return _level_at(lambda level: self.half_width(level, n) - abs(distance))


def _level_at(excess: Callable[[float], float]) -> float:
    """The level at which a function that falls with the level is zero, to 6 digits: bisection of its logarithm."""
    low, high = math.log(_SMALLEST_P), 0.0
    if excess(_SMALLEST_P) < 0:
        return _SMALLEST_P
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(math.exp(middle)) > 0 else (low, middle)
    return math.exp(high)


@dataclass(frozen=True)
class SeedTest:
    """Test of a mean difference over n seeds, with the noise of seeds and of test sentences in one variance.

    std: sample standard deviation of the differences over seeds.
    error: standard error of the mean, from the variance that the rows share or the row's own.
    p: two-sided p value, before Holm's correction.
    p_own: two-sided p value from the row's own seeds alone.
    level, own_level: the levels that p and p_own must reach.
    low, high: interval of the mean at these levels, at least 95 %: it excludes zero if both are reached. The intervals
        of all rows do not hold simultaneously.
    """

    n: int
    mean: float
    std: float
    error: float
    p: float
    p_own: float
    level: float
    own_level: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """A row compared with base in one metric.

    n: number of seeds that both have.
    mean: mean difference over these seeds; None without any.
    seed_test: test of the mean; None below two seeds, or if the seeds show no spread.
    p_seeds: its p value after Holm's correction over the rows of the study.
    minimum_detectable: smallest mean difference that would be significant with this noise and correction.
    bootstrap: paired bootstrap over test sentences, a statement of its own; None without resampled scores.
    p_bootstrap: its p value after Holm's correction over the rows.
    diverged: number of the row's seeds that diverged; `ended`: of all its seeds that have ended.
    margin: the study's margin of equivalence; None if it has none.
    is_within_margin: whether the difference is significantly smaller than the margin.
    look: the last look of the study that has been judged, or the first one while it is to come (`is_early`); None for a
        study without looks.
    settled_at: number of the look since which the row is settled; None if it is not, or without looks.
    """

    metric: Metric
    word: Word
    n: int
    mean: float | None
    seed_test: SeedTest | None = None
    p_seeds: float | None = None
    minimum_detectable: float | None = None
    bootstrap: BootstrapTest | None = None
    p_bootstrap: float | None = None
    diverged: int = 0
    ended: int = 0
    margin: float | None = None
    is_within_margin: bool = False
    look: Look | None = None
    is_early: bool = False
    settled_at: int | None = None
    needed: Callable[[], int | None] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def more_seeds(self) -> int | None:
        """Seeds to add so that the observed difference would be significant; None if no number would do."""
        undecided = self.word == "cannot tell" and not self.is_of_survivors
        return self.needed() if self.needed and undecided else None

    @property
    def is_of_survivors(self) -> bool:
        """Whether the difference is significant over the seeds that did not diverge, and undecided because of these."""
        test = self.seed_test
        return self.word == "cannot tell" and test is not None and not test.low <= 0 <= test.high

    @property
    def p(self) -> float | None:
        """One p value for both tests of the difference: below 0.05 if both are significant."""
        if self.p_seeds is None or self.seed_test is None:
            return None
        return max(self.p_seeds, min(1.0, self.seed_test.p_own * LEVEL / self.seed_test.own_level))

    @property
    def is_different(self) -> bool:
        """Whether the row is worse or better."""
        return self.word in ("worse", "better")

    @property
    def is_settled(self) -> bool:
        """Whether more seeds are not needed."""
        return self.is_different or self.word in ("as good as base", "no difference")

    @property
    def text(self) -> str:
        """The verdict as a sentence."""
        return self.text_against("base")

    def text_against(self, reference: str) -> str:
        """The verdict as a sentence that calls the row compared against `reference`."""
        if self.word == "":
            return "no result yet"
        if self.n == 0:
            seeds = "its only seed" if self.ended == 1 else f"{self.diverged} of {plural(self.ended, 'seed')}"
            return f"{self.word}: diverged with {seeds}" if self.word != "diverged" else f"diverged with {seeds}"
        parts = [self._over_seeds(reference)]
        if self.diverged:
            parts.append(f"{self.diverged} of {plural(self.ended, 'seed')} diverged")
        if self.n == 1 and self.bootstrap is not None and self.p_bootstrap is not None:
            noise = "beyond" if self.p_bootstrap < LEVEL else "within"
            parts.append(
                f"{noise} the noise of the test {self.metric.item}s ({p_text(self.p_bootstrap)}), not the seeds' noise"
            )
        if self.look is not None and self.settled_at is not None:
            parts.append(f"since {Look(self.settled_at, self.look.plan).text}")
        return "; ".join(parts)

    @property
    def short(self) -> str:
        """The verdict in a cell: `cannot tell (6.3)` with the minimum detectable difference, or with the margin."""
        if self.word == "as good as base":
            return f"{self.word} within {self.margin_text}"
        if self.word == "cannot tell" and self.minimum_detectable is not None and not self.is_of_survivors:
            return f"{self.word} ({self.minimum_detectable_text})"
        return self.word

    @property
    def minimum_detectable_text(self) -> str:
        """The minimum detectable difference, rounded for the metric, or to one digit where that would be 0.

        `>100` if the metric cannot differ by so much.
        """
        if self.minimum_detectable is None:
            return ""
        if self.metric.of_100 and self.minimum_detectable > 100:
            return ">100"
        text = f"{self.minimum_detectable:.{self.metric.digits}f}"
        return text if float(text) else f"{self.minimum_detectable:.1g}"

    @property
    def margin_text(self) -> str:
        """The margin: `±0.5`."""
        return "" if self.margin is None else f"±{self.margin:g}"

    def _over_seeds(self, reference: str) -> str:
        title = self.metric.title
        if self.word == "as good as base":
            return f"as good as {reference} within {self.margin_text} {title}"
        if self.word != "cannot tell":
            within = f", but within {self.margin_text} {title} of {reference}" if self.is_within_margin else ""
            return f"{self.word}{within}"
        if self.is_early and self.look is not None:
            return f"cannot tell before {self.look.text}"
        if self.n == 1:
            return "cannot tell: one seed shows no spread"
        if self.seed_test is None or self.minimum_detectable is None:
            return f"cannot tell: the seeds show no spread in {title}"
        if self.is_of_survivors:
            return "cannot tell: the difference is significant only over the seeds that did not diverge"
        seen = f"smallest difference this study could see: {self.minimum_detectable_text} {title}"
        return f"cannot tell ({seen}; {self._seeds_needed()})"

    def _seeds_needed(self) -> str:
        if self.more_seeds is None:
            return "no number of seeds would see the observed one"
        return f"about {plural(self.more_seeds, 'more seed')} would see the observed one"


def p_text(p: float) -> str:
    """`p = 0.03`, `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _mean(row: PairedScores) -> float | None:
    return statistics.fmean(row.differences.values()) if row.differences else None


@dataclass(frozen=True)
class _Comparison:
    """A row with the variances of its mean difference: `shared` with the other rows, and `own`."""

    row: PairedScores
    bootstrap: BootstrapTest | None
    shared: Noise | None = None
    own: Noise | None = None
    own_level: float = LEVEL

    @property
    def n(self) -> int:
        return len(self.row.differences)

    @property
    def mean(self) -> float | None:
        return _mean(self.row)

    def p_own(self, distance: float) -> float:
        """P value of a difference of this size from the row's own seeds."""
        return 1.0 if self.own is None else self.own.p(distance, self.n)

    def half_width(self, level: float, n: int) -> float:
        """Smallest difference that both tests would see with n seeds, at the spread observed with `self.n`."""
        assert self.shared is not None
        assert self.own is not None
        # More seeds would give more degrees of freedom, in proportion.
        more = (n - 1) / (self.n - 1)
        return max(self.shared.half_width(level, n, more), self.own.half_width(self.own_level, n, more))

    def p_for_holm(self, metric: Metric) -> float:
        """P value of the row in Holm's correction.

        A row that diverges more often than base gains nothing from the seeds with which it trains: it is tested for
        being worse by its scores, and by the number of its divergences. A row compared with a base that diverges more
        often is only tested for being better.
        """
        row, mean = self.row, self.mean
        p = 1.0 if self.shared is None or mean is None else self.shared.p(mean, self.n)
        if row.diverged == row.base_diverged:
            return p
        diverges_more = row.diverged > row.base_diverged
        if mean is not None and metric.is_better(mean) == diverges_more:
            p = 1.0
        if not diverges_more:
            return p
        if mean is not None and self.p_own(mean) >= self.own_level:
            p = 1.0
        p_diverged = fisher_p(row.diverged, row.ended, row.base_diverged, row.base_ended) if row.base_ended else 1.0
        return min(1.0, 2 * min(p, p_diverged))  # two tests of one row


def verdicts(
    metric: Metric,
    rows: Sequence[PairedScores],
    *,
    family: int | None = None,
    margin: float | None = None,
    look: Look | None = None,
    earlier: Sequence[Verdict] = (),
) -> list[Verdict]:
    """Verdict of each row.

    Args:
        metric: the metric of the differences.
        rows: all rows of the study but base, also those without a score yet.
        family: number of rows that Holm's correction covers: all that the study has from the beginning, whatever part
            of it is printed or done; None for the rows given. 1 tests each row as if it were the only one.
        margin: a difference within which a row counts as as good as base; None to make no such claim.
        look: at which the study is judged, with the scores up to it; None for a study that is judged once.
        earlier: the verdicts of the rows at the look before.
    """
    level = LEVEL if look is None else look.level
    compared = _compare(rows, level)
    size = max(family if family is not None else len(rows), 1)
    different = frozenset(index for index, one in enumerate(earlier) if one.is_different and one.seed_test)
    tests = [_holm_over_rows([one.p_for_holm(metric) for one in compared], size, level, different)]
    if margin is not None:
        within = frozenset(index for index, one in enumerate(earlier) if one.is_within_margin)
        tests.append(_holm_over_rows([_equivalence(one, margin)[0] for one in compared], size, level, within))
    bootstraps = [one.bootstrap for one in compared]
    p_bootstraps = _adjusted([test.p if test else 1.0 for test in bootstraps], size)
    found = [
        _verdict(metric, one, [test[index] for test in tests], margin, p_bootstraps[index])
        for index, one in enumerate(compared)
    ]
    if look is None:
        return found
    before: Sequence[Verdict | None] = earlier or [None] * len(found)
    return [_at_look(*each, look) for each in zip(found, rows, before, strict=True)]


def verdicts_over_looks(
    metric: Metric,
    looks: Sequence[tuple[Look, Sequence[PairedScores]]],
    *,
    family: int | None = None,
    margin: float | None = None,
) -> list[list[Verdict]]:
    """Verdicts at each look.

    The error of all looks together is that of `verdicts`: row by row, the smallest of p / (share of the level) over the
    looks is a p value, and Holm's method over these never takes a row back.

    Args:
        metric: the metric of the differences.
        looks: each look with the scores of all rows up to it.
        family: as in `verdicts`.
        margin: as in `verdicts`.
    """
    found: list[list[Verdict]] = []
    for look, rows in looks:
        earlier = found[-1] if found else ()
        found.append(verdicts(metric, rows, family=family, margin=margin, look=look, earlier=earlier))
    return found


def verdicts_before(metric: Metric, rows: Sequence[PairedScores], look: Look) -> list[Verdict]:
    """Verdicts while the first look is to come: the differences so far, and no test of them."""
    return [
        Verdict(
            metric,
            "cannot tell" if row.differences else "diverged" if row.diverged else "",
            len(row.differences),
            _mean(row),
            diverged=row.diverged,
            ended=row.ended,
            look=look,
            is_early=True,
        )
        for row in rows
    ]


def _at_look(verdict: Verdict, row: PairedScores, earlier: Verdict | None, look: Look) -> Verdict:
    """The verdict with its look. A row that was settled before stays so, unless its scores speak against it now."""
    settled_at = earlier.settled_at if earlier else None
    if earlier is not None and not verdict.is_different and _still_holds(verdict, row, earlier):
        within = verdict.is_within_margin or earlier.is_within_margin
        verdict = replace(verdict, word=earlier.word, is_within_margin=within)
    return replace(verdict, look=look, settled_at=(settled_at or look.number) if verdict.is_settled else None)


def _still_holds(verdict: Verdict, row: PairedScores, earlier: Verdict) -> bool:
    """Whether an earlier verdict agrees with the divergence and the mean so far."""
    if earlier.word == "worse":
        is_worse = verdict.mean is None or not verdict.metric.is_better(verdict.mean)
        return is_worse and row.diverged >= row.base_diverged
    if verdict.mean is None or row.diverged > row.base_diverged:
        return False
    if earlier.word == "better":
        return verdict.metric.is_better(verdict.mean)
    is_near = earlier.margin is not None and abs(verdict.mean) < earlier.margin
    return earlier.word == "as good as base" and is_near and not row.base_diverged


def _compare(rows: Sequence[PairedScores], level: float) -> list[_Comparison]:
    """Each row with its variances. The noise of rows that share base's trainings is estimated apart."""
    bootstraps = [_bootstrap(row) for row in rows]
    pooled = [row for row in rows if not row.same_training and not row.is_constant_zero]
    noise = seed_noise([row.differences for row in pooled])
    # From 1, because base is row 0 of the noise. By identity, because two rows may have equal scores.
    places = {id(row): index for index, row in enumerate(pooled, 1)}
    compared = []
    for row, bootstrap in zip(rows, bootstraps, strict=True):
        if len(row.differences) < 2 or row.is_constant_zero:
            compared.append(_Comparison(row, bootstrap))
            continue
        together = id(row) in places
        of_row = noise if together else seed_noise([row.differences])
        compared.append(_with_noise(row, bootstrap, of_row, places[id(row)] if together else 1, level))
    return compared


def _with_noise(
    row: PairedScores, bootstrap: BootstrapTest | None, noise: SeedNoise, index: int, level: float
) -> _Comparison:
    sentences = bootstrap.std**2 if bootstrap else 0.0
    shared, own = noise.of_difference(index), noise.own_of_difference(index)
    # No spread at all is no knowledge of the noise over seeds, whatever the test sentences say.
    if not any(part.value for part in shared):
        return _Comparison(row, bootstrap)
    # Rows that are unlike the others cast doubt on the pool, so each makes the second test stricter.
    own_level = level / (1 + len(noise.apart))
    return _Comparison(row, bootstrap, Noise(shared, sentences), Noise((own,), sentences), own_level)


def _bootstrap(row: PairedScores) -> BootstrapTest | None:
    """Bootstrap the mean over seeds; None unless every seed with a difference has resampled scores."""
    if not row.differences or row.resamples.keys() != row.differences.keys():
        return None
    mean = statistics.fmean(row.differences.values())
    return paired_bootstrap(mean, list(row.resamples.values()))


def _adjusted(p_values: Sequence[float], family: int) -> list[float]:
    """Holm's correction over a family of which the p values are a part; the others count as 1."""
    if family == 1:
        return list(p_values)
    # Rows that are not printed or have no score yet count as not significant, so that no verdict is withdrawn later.
    return holm([*p_values, *[1.0] * (family - len(p_values))])[: len(p_values)]


def _holm_over_rows(
    p_values: Sequence[float], family: int, level: float, settled: frozenset[int]
) -> list[tuple[float, float]]:
    """(adjusted p value, level) of each row by Holm's step-down method.

    The level of a row that is not significant is the one at which the method stops.

    Args:
        p_values: of the rows.
        family: number of rows of the study; 1 corrects nothing.
        level: of all rows together.
        settled: rows that are significant since an earlier look; the method goes on with the others.
    """
    if family == 1:
        return [(min(1.0, p * LEVEL / level), level) for p in p_values]
    first = max(1, family - len(settled))
    left, stopped, highest = first, False, 0.0
    of_settled = level / max(1, family - len(settled) + 1)
    result = {index: (min(1.0, p_values[index] * LEVEL / of_settled), of_settled) for index in settled}
    ordered = sorted(set(range(len(p_values))) - settled, key=p_values.__getitem__)
    for number, index in enumerate(ordered):
        highest = max(highest, min(1.0, p_values[index] * LEVEL * max(1, first - number) / level))
        stopped = stopped or p_values[index] >= level / left
        result[index] = (highest, level / left)
        left = max(1, left - (not stopped))
    return [result[index] for index in range(len(p_values))]


def _equivalence(one: _Comparison, margin: float) -> tuple[float, float]:
    """P values of two one-sided tests that the difference is at least the margin: shared variance, own variance.

    Source: Schuirmann, "A Comparison of the Two One-Sided Tests Procedure and the Power Approach", J. Pharmacokinetics
    and Biopharmaceutics (1987).
    """
    if one.shared is None or one.mean is None or one.row.diverged or one.row.base_diverged:
        return 1.0, 1.0
    # The nearer of the two limits decides: the test against the other one has a smaller p value.
    distance = margin - abs(one.mean)
    if distance <= 0:
        return 1.0, 1.0
    return one.shared.p(distance, one.n) / 2, one.p_own(distance) / 2


def _verdict(
    metric: Metric,
    one: _Comparison,
    tests: Sequence[tuple[float, float]],
    margin: float | None,
    p_bootstrap: float,
) -> Verdict:
    row, (adjusted, level) = one.row, tests[0]
    seed_test, detectable = None, None
    needed: Callable[[], int | None] | None = None
    if one.shared is not None and one.mean is not None:
        detectable = one.half_width(level, one.n)
        seed_test = _seed_test(one, level, detectable)
        needed = partial(_more_seeds, one, level)
    within = margin is not None and tests[1][0] < LEVEL and _equivalence(one, margin)[1] < one.own_level
    return Verdict(
        metric,
        _word(metric, one, adjusted, within),
        one.n,
        one.mean,
        seed_test,
        adjusted if seed_test else None,
        detectable,
        one.bootstrap,
        p_bootstrap if one.bootstrap else None,
        row.diverged,
        row.ended or one.n + row.diverged,
        margin,
        within,
        needed=needed,
    )


def _seed_test(one: _Comparison, level: float, half: float) -> SeedTest:
    assert one.shared is not None
    assert one.mean is not None
    return SeedTest(
        n=one.n,
        mean=one.mean,
        std=statistics.stdev(one.row.differences.values()),
        error=one.shared.error(one.n),
        p=one.shared.p(one.mean, one.n),
        p_own=one.p_own(one.mean),
        level=level,
        own_level=one.own_level,
        low=one.mean - half,
        high=one.mean + half,
    )


def _more_seeds(one: _Comparison, level: float) -> int | None:
    """Seeds to add until the observed mean would be significant with the observed spread; None if a study cannot."""
    assert one.mean is not None
    size = abs(one.mean)
    low, high = one.n, one.n + 1
    while one.half_width(level, high) > size:
        if high >= MAX_SEEDS:
            return None
        low, high = high, min(2 * high, MAX_SEEDS)
    # The width falls with n, so that bisection finds the smallest number.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one.half_width(level, middle) > size else (low, middle)
    return high - one.n


def _word(metric: Metric, one: _Comparison, adjusted: float, within: bool) -> Word:
    row = one.row
    if one.mean is None:
        if not row.diverged:
            return ""
        always = row.diverged == row.ended > 1 and not row.pending and row.base_ended and not row.base_diverged
        return "worse" if always else "diverged"
    if adjusted < LEVEL and row.diverged > row.base_diverged:
        return "worse"  # by its scores or by its divergence
    if one.n == 1:
        return "cannot tell"
    if row.is_constant_zero and not row.diverged:
        return "no difference"
    if one.shared is None:
        return "cannot tell"
    if adjusted < LEVEL and one.p_own(one.mean) < one.own_level:
        return "better" if metric.is_better(one.mean) else "worse"
    return "as good as base" if within else "cannot tell"
