"""Judge the rows of a study: give a verdict on each.

The variance of a difference has two sources: the seeds and the test sentences. A row is worse or
better than base if its difference passes two tests:

1. with the pooled variance over seeds, or the row's own if that is larger, and Holm's correction
   over all rows of the study. This test has many degrees of freedom.
2. with the variance of the row's own seeds, without a correction. This test protects against rows
   that are noisier than the others.

Most studies are judged once, with all their seeds. A study with several looks is judged at each of
them at a part of the level (`ablate.stats.looks`), and a verdict stays at later looks.
docs/verdict.md has the formulas, and benchmarks/verdicts.py measures the error and the power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ablate.stats.comparison import Comparison, PairedScores, compare
from ablate.stats.looks import SINGLE_LOOK, Look
from ablate.stats.metrics import Metric
from ablate.stats.significance import LEVEL, holm_levels
from ablate.stats.verdict import DIFFERENT, SETTLED, Verdict, Word


def verdicts(
    metric: Metric,
    rows: Sequence[PairedScores],
    *,
    family: int | None = None,
    margin: float | None = None,
    look: Look = SINGLE_LOOK,
    earlier: Sequence[Verdict] = (),
    share: float = 1.0,
) -> list[Verdict]:
    """Give a verdict on each row.

    Args:
        metric: the metric of the differences.
        rows: all rows of the study except the bases, also those without a score yet.
        family: number of rows that Holm's correction covers: all rows of the study, also those that
            are not finished or not printed. None means the number of `rows`. 1 means no correction.
        margin: margin of equivalence, in the metric; None for no test of equivalence.
        look: the look at which the study is judged, with the scores up to it.
        earlier: the verdicts on the rows at the previous look.
        share: part of the level. With m metrics it is 1 / m, so that the errors add up to the level
            at most (Bonferroni's inequality).
    """
    level = look.level * share
    if family is None:
        family = len(rows)
    family = max(family, 1)
    different = set()
    equivalent = set()
    for index, verdict in enumerate(earlier):
        if verdict.is_different and verdict.seed_test:
            different.add(index)
        if verdict.is_within_margin:
            equivalent.add(index)
    comparisons = compare(rows, level)
    difference_ps = []
    equivalence_ps = []
    bootstrap_ps = []
    for comparison in comparisons:
        difference_ps.append(comparison.p_uncorrected(metric))
        equivalence_ps.append(comparison.equivalence_p_values(margin or 0.0)[0])
        bootstrap = comparison.bootstrap
        bootstrap_ps.append(1.0 if bootstrap is None else bootstrap.p)
    difference_tests = holm_levels(difference_ps, family, level, frozenset(different))
    equivalence_tests = holm_levels(equivalence_ps, family, level, frozenset(equivalent))
    if family > 1:
        bootstrap_ps = [p for p, _ in holm_levels(bootstrap_ps, family)]
    judged = []
    for index, comparison in enumerate(comparisons):
        adjusted = _Adjusted(
            *difference_tests[index], equivalence_tests[index][0], bootstrap_ps[index]
        )
        earlier_verdict = earlier[index] if earlier else None
        judged.append(_verdict(metric, comparison, adjusted, margin, look, earlier_verdict))
    return judged


def verdicts_over_looks(
    metric: Metric,
    looks: Sequence[tuple[Look, Sequence[PairedScores]]],
    *,
    family: int | None = None,
    margin: float | None = None,
    share: float = 1.0,
) -> list[list[Verdict]]:
    """Give verdicts at each look.

    The error of all looks together is that of `verdicts`. For each row, the smallest value of
    p / (share of the level) over the looks is a p value, and Holm's method over these values never
    withdraws a verdict.

    Args:
        metric: the metric of the differences.
        looks: the looks, with the scores of all rows up to each of them.
        family: as in `verdicts`.
        margin: as in `verdicts`.
        share: as in `verdicts`.
    """
    judged: list[list[Verdict]] = []
    earlier: list[Verdict] = []
    common: dict[str, Any] = {"family": family, "margin": margin, "share": share}
    for look, rows in looks:
        earlier = verdicts(metric, rows, look=look, earlier=earlier, **common)
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


class _Adjusted(NamedTuple):
    """P values of a row after Holm's correction.

    difference: of the test that the difference is 0, which is done at `level`.
    equivalence: of the test that the difference is outside of the margin.
    bootstrap: of the bootstrap over test sentences.
    """

    difference: float
    level: float
    equivalence: float
    bootstrap: float


def _verdict(
    metric: Metric,
    comparison: Comparison,
    adjusted: _Adjusted,
    margin: float | None,
    look: Look,
    earlier: Verdict | None,
) -> Verdict:
    """The verdict on a row at a look."""
    row = comparison.row
    noise = comparison.noise
    within = False
    if noise is not None:
        p_own = comparison.equivalence_p_values(margin or 0.0)[1]
        within = adjusted.equivalence < LEVEL and p_own < noise.own_level
    word = _word(metric, comparison, adjusted.difference, within)
    word, within, settled_at = _carry_over(metric, row, word, within, look, earlier)
    lower_bound = row.lower_bound + row.shift
    bootstrap = comparison.bootstrap
    if bootstrap is not None:
        low, high = metric.clipped(bootstrap.low, bootstrap.high, lower_bound)
        bootstrap = replace(bootstrap, low=low, high=high)
    is_tested = noise is not None and row.mean is not None
    level = adjusted.level
    detectable = None
    if is_tested:
        detectable = comparison.detectable_difference(level, row.n)
    return Verdict(
        metric,
        word,
        row.n,
        row.mean,
        seed_test=comparison.seed_test(level) if is_tested else None,
        p_seeds=adjusted.difference if is_tested else None,
        minimum_detectable=detectable,
        bootstrap=bootstrap,
        p_bootstrap=None if bootstrap is None else adjusted.bootstrap,
        diverged=row.diverged,
        ended=row.ended or row.n + row.diverged,
        margin=margin,
        is_within_margin=within,
        look=look,
        settled_at=settled_at,
        shift=row.shift,
        lower_bound=lower_bound,
        compute_more_seeds=partial(comparison.more_seeds, level) if is_tested else None,
    )


def _carry_over(
    metric: Metric,
    row: PairedScores,
    word: Word,
    within: bool,
    look: Look,
    earlier: Verdict | None,
) -> tuple[Word, bool, int | None]:
    """Carry an earlier verdict over to this look, unless the scores contradict it or this look has
    a verdict itself.

    Returns:
        The word, whether the difference is within the margin, and the number of the look at which
        the verdict was reached (None while it is open).
    """
    if earlier is not None and word not in DIFFERENT and _still_holds(metric, row, earlier):
        word = earlier.word
        within = within or earlier.is_within_margin
    settled_at = None
    if word in SETTLED:
        settled_at = (earlier and earlier.settled_at) or look.number
    return word, within, settled_at


def _still_holds(metric: Metric, row: PairedScores, earlier: Verdict) -> bool:
    """Whether the row's mean and its divergences do not contradict an earlier verdict."""
    mean = row.mean
    if earlier.word == "worse":
        is_worse = mean is None or not metric.is_better(mean)
        return is_worse and row.diverged >= row.base_diverged
    if mean is None or row.diverged > row.base_diverged:
        return False
    if earlier.word == "better":
        return metric.is_better(mean)
    is_near = earlier.margin is not None and abs(mean) < earlier.margin
    return earlier.word == "as good as base" and is_near and not row.base_diverged


def _word(metric: Metric, comparison: Comparison, p_adjusted: float, within: bool) -> Word:
    """The verdict of this look alone.

    Args:
        metric: the metric of the differences.
        comparison: the row.
        p_adjusted: p value of the difference, after Holm's correction.
        within: whether the row is equivalent to base within the margin.
    """
    row = comparison.row
    if row.mean is None:
        if not row.diverged:
            return ""
        always_diverges = row.diverged == row.ended > 1 and not row.pending
        base_never_diverges = row.base_ended > 0 and not row.base_diverged
        return "worse" if always_diverges and base_never_diverges else "diverged"
    if p_adjusted < LEVEL and row.diverged > row.base_diverged:
        return "worse"  # by its scores or by its divergences
    if row.n == 1:
        return "cannot tell"
    if row.is_constant_zero and not row.diverged:
        return "no difference"
    if p_adjusted < LEVEL and comparison.passes_own_test(row.mean):
        return "better" if metric.is_better(row.mean) else "worse"
    return "as good as base" if within else "cannot tell"
