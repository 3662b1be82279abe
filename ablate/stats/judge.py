"""Judge the rows of a study: the verdict on each.

Two sources of noise are added in one variance: another seed gives another score, and other test
sentences give another score. A row is worse or better if its difference passes two tests:

1. with the variance over seeds that the rows share, or the row's own if that is larger, after
   Holm's correction over all rows of the study; it has many degrees of freedom;
2. with the variance of the row's own seeds alone, uncorrected; it protects rows that are noisier
   than others.

A study with looks is judged at each of them at a part of the level (`ablate.stats.looks`), and its
rows stay settled. docs/verdict.md gives the formulas, and benchmarks/verdicts.py the error and
power of this rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ablate.config.metrics import Metric
from ablate.stats.comparison import Comparison, PairedScores, compare
from ablate.stats.looks import Look
from ablate.stats.significance import LEVEL, holm, holm_levels
from ablate.stats.verdict import Verdict, Word


def verdicts(
    metric: Metric,
    rows: Sequence[PairedScores],
    *,
    family: int | None = None,
    margin: float | None = None,
    look: Look | None = None,
    earlier: Sequence[Verdict] = (),
    share: float = 1.0,
) -> list[Verdict]:
    """Verdict of each row.

    Args:
        metric: the metric of the differences.
        rows: all rows of the study but base, also those without a score yet.
        family: number of rows that Holm's correction covers: all that the study has from the
            beginning, whatever part of it is printed or done; None for the rows given. 1 tests each
            row as if it were the only one.
        margin: a difference within which a row counts as as good as base; None to make no such
            claim.
        look: at which the study is judged, with the scores up to it; None for a study that is
            judged once.
        earlier: the verdicts of the rows at the look before.
        share: part of the level; 1 / m if verdicts are by m metrics, whose errors add up to the
            level at most (Bonferroni's inequality).
    """
    level = (LEVEL if look is None else look.level) * share
    compared = compare(rows, level)
    size = max(family if family is not None else len(rows), 1)
    different = frozenset(
        index for index, one in enumerate(earlier) if one.is_different and one.seed_test
    )
    tests = [holm_levels([one.p_for_holm(metric) for one in compared], size, level, different)]
    if margin is not None:
        within = frozenset(index for index, one in enumerate(earlier) if one.is_within_margin)
        tests.append(
            holm_levels([one.p_equivalent(margin)[0] for one in compared], size, level, within)
        )
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
    share: float = 1.0,
) -> list[list[Verdict]]:
    """Verdicts at each look.

    The error of all looks together is that of `verdicts`: row by row, the smallest of p / (share of
    the level) over the looks is a p value, and Holm's method over these never takes a row back.

    Args:
        metric: the metric of the differences.
        looks: each look with the scores of all rows up to it.
        family: as in `verdicts`.
        margin: as in `verdicts`.
        share: as in `verdicts`.
    """
    found: list[list[Verdict]] = []
    for look, rows in looks:
        earlier = found[-1] if found else ()
        found.append(
            verdicts(
                metric, rows, family=family, margin=margin, look=look, earlier=earlier, share=share
            )
        )
    return found


def verdicts_before(metric: Metric, rows: Sequence[PairedScores], look: Look) -> list[Verdict]:
    """Verdicts while the first look is to come: the differences so far, and no test of them."""
    return [
        Verdict(
            metric,
            "cannot tell" if row.differences else "diverged" if row.diverged else "",
            row.n,
            row.mean,
            diverged=row.diverged,
            ended=row.ended,
            look=look,
            is_early=True,
        )
        for row in rows
    ]


def _at_look(verdict: Verdict, row: PairedScores, earlier: Verdict | None, look: Look) -> Verdict:
    """The verdict with its look. A row that was settled before stays so, unless its scores speak
    against it now.
    """
    settled_at = earlier.settled_at if earlier else None
    if earlier is not None and not verdict.is_different and _still_holds(verdict, row, earlier):
        within = verdict.is_within_margin or earlier.is_within_margin
        verdict = replace(verdict, word=earlier.word, is_within_margin=within)
    return replace(
        verdict, look=look, settled_at=(settled_at or look.number) if verdict.is_settled else None
    )


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


def _verdict(
    metric: Metric,
    one: Comparison,
    tests: Sequence[tuple[float, float]],
    margin: float | None,
    p_bootstrap: float,
) -> Verdict:
    row, (adjusted, level) = one.row, tests[0]
    seed_test, detectable = None, None
    needed: Callable[[], int | None] | None = None
    if one.shared is not None and one.mean is not None:
        detectable = one.detectable(level, one.n)
        seed_test = one.seed_test(level)
        needed = partial(one.more_seeds, level)
    within = (
        margin is not None and tests[1][0] < LEVEL and one.p_equivalent(margin)[1] < one.own_level
    )
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
        shift=row.shift,
        needed=needed,
    )


def _word(metric: Metric, one: Comparison, adjusted: float, within: bool) -> Word:
    row = one.row
    if one.mean is None:
        if not row.diverged:
            return ""
        always = (
            row.diverged == row.ended > 1
            and not row.pending
            and row.base_ended
            and not row.base_diverged
        )
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


def _adjusted(p_values: Sequence[float], family: int) -> list[float]:
    """Holm's correction over a family of which the p values are a part; the others count as 1."""
    if family == 1:
        return list(p_values)
    # Rows that are not printed or have no score yet count as not significant, so that no verdict is
    # withdrawn later.
    return holm([*p_values, *[1.0] * (family - len(p_values))])[: len(p_values)]
