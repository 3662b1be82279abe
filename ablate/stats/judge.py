"""Judge the rows of a study: give a verdict on each.

A row is better or worse than base if its mean difference from base is significant in two tests:

1. the pooled test. It uses the variance between seeds, pooled from all rows, or the row's own
   variance if that is larger. It has many degrees of freedom. Holm's method corrects it for the
   number of rows of the study.
2. the row's own test. It uses the variance between the row's own seeds, and protects against rows
   that are noisier than others. It is not corrected for the number of rows, but the more rows are
   outliers in noise, the stricter it is for every row.

Both tests add the variance between test sentences. A row that diverges more often than base can
also be judged worse because of its divergences; `ScoreComparison.p_uncorrected` has this rule.

Most studies are judged once, with all their seeds. A study with several looks is judged at each
look, which uses a part of the significance level (`ablate.stats.looks`). A verdict that is reached
at a look stays at later looks.
docs/statistics.md has the formulas, and benchmarks/verdicts.py measures the error and the power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ablate.stats.comparison import PairedScores, ScoreComparison, compare
from ablate.stats.looks import SINGLE_LOOK, Look
from ablate.stats.metrics import Metric
from ablate.stats.significance import HolmTest, holm_correction
from ablate.stats.verdict import DECIDED, DIFFERENT, Verdict, Word


def verdicts(
    metric: Metric,
    rows: Sequence[PairedScores],
    *,
    n_tests: int | None = None,
    margin: float | None = None,
    look: Look = SINGLE_LOOK,
    earlier: Sequence[Verdict] = (),
    share: float = 1.0,
) -> list[Verdict]:
    """Give a verdict on each row.

    Args:
        metric: the metric of the differences.
        rows: all rows of the study except the bases, also rows without a score yet.
        n_tests: number of rows that Holm's correction covers: all rows of the study, also rows that
            are not finished or not printed; None for the number of `rows`.
        margin: margin of equivalence, in the metric; None for no test of equivalence.
        look: the look at which the study is judged, with the scores up to it.
        earlier: the verdicts on the rows at the previous look.
        share: share of the level for this metric. With m metrics it is 1 / m, so that the
            probability of a false verdict in any of them stays below the level (Bonferroni's
            inequality).
    """
    level = look.level * share
    n_tests = max(1, len(rows) if n_tests is None else n_tests)
    comparisons = compare(rows, level)
    different_before = set()
    equivalent_before = set()
    for index, verdict in enumerate(earlier):
        # A row that is worse only because it diverged has no test over seeds, so Holm's method has
        # not rejected it.
        if verdict.is_different and verdict.seed_test:
            different_before.add(index)
        if verdict.is_within_margin:
            equivalent_before.add(index)
    difference_ps = [comparison.p_uncorrected(metric) for comparison in comparisons]
    equivalence_ps = [comparison.equivalence(margin).pooled for comparison in comparisons]
    bootstraps = [comparison.bootstrap for comparison in comparisons]
    bootstrap_ps = [1.0 if bootstrap is None else bootstrap.p for bootstrap in bootstraps]
    differences = holm_correction(difference_ps, n_tests, level, different_before)
    equivalences = holm_correction(equivalence_ps, n_tests, level, equivalent_before)
    bootstrap_tests = holm_correction(bootstrap_ps, n_tests)  # for display: they decide no verdict
    before: Sequence[Verdict | None] = earlier or [None] * len(rows)
    judged = []
    for comparison, difference, equivalence, bootstrap_test, verdict_before in zip(
        comparisons, differences, equivalences, bootstrap_tests, before, strict=True
    ):
        corrected = _Corrected(difference, equivalence, bootstrap_test)
        verdict = _verdict(metric, comparison, corrected, margin, look)
        judged.append(_carry_over(verdict, comparison.row.base_diverged, verdict_before))
    return judged


def verdicts_over_looks(
    metric: Metric,
    looks: Sequence[tuple[Look, Sequence[PairedScores]]],
    *,
    n_tests: int | None = None,
    margin: float | None = None,
    share: float = 1.0,
) -> list[list[Verdict]]:
    """Give verdicts at each look.

    The probability of a false verdict at any look stays below the significance level, as for a
    single look. Each look uses a fraction of the level, and the fractions sum to 1. Therefore the
    minimum of p / fraction over the looks so far is a valid p value of a row. A row that was
    significant at an earlier look stays significant, because this minimum only falls; so `verdicts`
    tells Holm's method that it has been rejected.

    Args:
        metric: the metric of the differences.
        looks: the looks, with the scores of all rows up to each of them.
        n_tests: as in `verdicts`.
        margin: as in `verdicts`.
        share: as in `verdicts`.
    """
    judged: list[list[Verdict]] = []
    earlier: list[Verdict] = []
    for look, rows in looks:
        earlier = verdicts(
            metric, rows, n_tests=n_tests, margin=margin, look=look, earlier=earlier, share=share
        )
        judged.append(earlier)
    return judged


def early_verdicts(metric: Metric, rows: Sequence[PairedScores], look: Look) -> list[Verdict]:
    """Verdicts before the first look: the differences so far, without a test."""
    judged = []
    for row in rows:
        word: Word = "diverged" if row.diverged else ""
        if row.differences:
            word = "cannot tell"
        verdict = Verdict(
            metric,
            word,
            row.n,
            row.mean,
            diverged=row.diverged,
            ended=row.ended,
            look=look,
            is_early=True,
        )
        judged.append(verdict)
    return judged


@dataclass(frozen=True)
class _Corrected:
    """Tests of a row after Holm's correction over the rows of the study.

    difference: pooled test of a difference of 0.
    equivalence: pooled test of a difference beyond the margin.
    bootstrap: paired bootstrap over test sentences, of a difference of 0.
    """

    difference: HolmTest
    equivalence: HolmTest
    bootstrap: HolmTest


def _verdict(
    metric: Metric,
    comparison: ScoreComparison,
    corrected: _Corrected,
    margin: float | None,
    look: Look,
) -> Verdict:
    """The verdict on a row by the scores up to a look, without earlier verdicts."""
    row = comparison.row
    is_within = _is_equivalent(comparison, corrected.equivalence, margin)
    word = _word(metric, comparison, corrected.difference, is_within)
    # All differences were shifted (`PairedScores.shift`), so the possible ones are, too.
    smallest, largest = row.possible
    possible = (smallest + row.shift, largest + row.shift)
    bootstrap = comparison.bootstrap
    if bootstrap is not None and row.mean is not None:
        low, high = metric.clipped(bootstrap.low, bootstrap.high, possible, row.mean)
        bootstrap = replace(bootstrap, low=low, high=high)
    level = corrected.difference.level
    seed_test = comparison.seed_test(level)
    return Verdict(
        metric,
        word,
        row.n,
        row.mean,
        seed_test=seed_test,
        p_holm=corrected.difference.p if seed_test else None,
        minimum_detectable=comparison.detectable_difference(level, row.n) if seed_test else None,
        bootstrap=bootstrap,
        p_bootstrap=corrected.bootstrap.p if bootstrap else None,
        diverged=row.diverged,
        ended=row.ended,
        pending=row.pending,
        margin=margin,
        is_within_margin=is_within,
        look=look,
        decided_at=look.number if word in DECIDED else None,
        shift=row.shift,
        possible=possible,
        comparison=comparison if seed_test else None,
    )


def _is_equivalent(
    comparison: ScoreComparison, pooled_test: HolmTest, margin: float | None
) -> bool:
    """Whether the pooled test and the row's own test show that the difference is smaller than the
    margin.
    """
    noise = comparison.noise
    if noise is None or not pooled_test.is_significant:
        return False
    return comparison.equivalence(margin).own < noise.own_level


def _word(
    metric: Metric, comparison: ScoreComparison, pooled_test: HolmTest, is_within: bool
) -> Word:
    """The word of the verdict by the scores up to this look, without earlier verdicts.

    Args:
        metric: the metric of the differences.
        comparison: the row.
        pooled_test: the pooled test of the difference, after Holm's correction.
        is_within: whether the row is equivalent to base within the margin.
    """
    row = comparison.row
    if row.mean is None:
        if not row.diverged:
            return ""
        always_diverges = row.ended > 1 and row.diverged == row.ended and not row.pending
        base_never_diverges = row.base_ended > 0 and not row.base_diverged and not row.base_pending
        # The test is significant if the row diverges significantly more often than base.
        is_worse = (always_diverges and base_never_diverges) or pooled_test.is_significant
        return "worse" if is_worse else "diverged"
    # A row with more divergences than base is tested only for being worse: by its divergences, or
    # by scores that pass the row's own test (`ScoreComparison.p_uncorrected`).
    if pooled_test.is_significant and row.diverged > row.base_diverged:
        return "worse"
    if row.n == 1:
        return "cannot tell"
    if row.is_constant_zero and not row.diverged:
        return "no difference"
    if pooled_test.is_significant and comparison.passes_own_test:
        return "better" if metric.is_better(row.mean) else "worse"
    return "as good as base" if is_within else "cannot tell"


def _carry_over(verdict: Verdict, base_diverged: int, earlier: Verdict | None) -> Verdict:
    """The verdict at this look, or the word of the earlier verdict: unless this look finds the row
    better or worse, or its scores contradict the earlier verdict.

    Args:
        verdict: the verdict by the scores up to this look.
        base_diverged: number of base's seeds that diverged.
        earlier: the verdict at the look before; None at the first look.
    """
    if earlier is None:
        return verdict
    word = verdict.word
    is_within = verdict.is_within_margin
    if word not in DIFFERENT and _still_holds(verdict, base_diverged, earlier):
        word = earlier.word
        is_within = is_within or earlier.is_within_margin
    decided_at = verdict.decided_at
    if word in DECIDED and word == earlier.word:
        decided_at = earlier.decided_at
    return replace(verdict, word=word, is_within_margin=is_within, decided_at=decided_at)


def _still_holds(verdict: Verdict, base_diverged: int, earlier: Verdict) -> bool:
    """Whether the mean and the divergences of a row do not contradict the earlier verdict."""
    metric = verdict.metric
    mean = verdict.mean
    if earlier.word == "worse":
        # Without a mean, every run of the row has diverged.
        is_not_better = mean is None or not metric.is_better(mean)
        return is_not_better and verdict.diverged >= base_diverged
    if mean is None or verdict.diverged > base_diverged:
        return False
    if earlier.word == "better":
        return metric.is_better(mean)
    if earlier.word != "as good as base" or earlier.margin is None:
        return False
    has_divergence = verdict.diverged > 0 or base_diverged > 0
    return abs(mean) < earlier.margin and not has_divergence
