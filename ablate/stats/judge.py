"""Judge the rows of a study: the verdict on each.

Two sources of noise are added in one variance: another seed gives another score, and other test
sentences give another score. A row is worse or better if its difference passes two tests:

1. with the variance over seeds that the rows share, or the row's own if that is larger, after
   Holm's correction over all rows of the study; it has many degrees of freedom;
2. with the variance of the row's own seeds alone, uncorrected; it protects rows that are noisier
   than others.

A study is judged at each of its looks at a part of the level (`ablate.stats.looks`), and its rows
stay settled; most studies have one look, with all their seeds. docs/verdict.md gives the formulas,
and benchmarks/verdicts.py the error and power of this rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ablate.stats.comparison import Comparison, PairedScores, compare
from ablate.stats.looks import ONCE, Look
from ablate.stats.metrics import Metric
from ablate.stats.significance import LEVEL, holm_levels
from ablate.stats.verdict import Verdict, Word


def verdicts(
    metric: Metric,
    rows: Sequence[PairedScores],
    *,
    family: int | None = None,
    margin: float | None = None,
    look: Look = ONCE,
    earlier: Sequence[Verdict] = (),
    share: float = 1.0,
) -> list[Verdict]:
    """Verdict of each row.

    Args:
        metric: the metric of the differences.
        rows: all rows of the study but base, also those without a score yet; of several bases, all
            rows of each.
        family: number of rows that Holm's correction covers: all that the study has from the
            beginning, whatever part of it is printed or done; None for the rows given. 1 tests each
            row as if it were the only one.
        margin: a difference within which a row counts as as good as base; None to make no such
            claim.
        look: at which the study is judged, with the scores up to it.
        earlier: the verdicts of the rows at the look before.
        share: part of the level; 1 / m if verdicts are by m metrics, whose errors add up to the
            level at most (Bonferroni's inequality).
    """
    level = look.level * share
    if family is None:
        family = len(rows)
    family = max(family, 1)
    different, within = set(), set()
    for index, verdict in enumerate(earlier):
        if verdict.is_different and verdict.seed_test:
            different.add(index)
        if verdict.is_within_margin:
            within.add(index)
    compared = compare(rows, level)
    p_different, p_within, p_bootstraps = [], [], []
    for row in compared:
        p_different.append(row.p_for_holm(metric))
        p_within.append(row.p_equivalent(margin or 0.0)[0])
        p_bootstraps.append(1.0 if row.bootstrap is None else row.bootstrap.p)
    differ = holm_levels(p_different, family, level, frozenset(different))
    equal = holm_levels(p_within, family, level, frozenset(within))
    if family > 1:
        p_bootstraps = [p for p, _ in holm_levels(p_bootstraps, family)]
    judged = []
    for index, row in enumerate(compared):
        p_equal, _ = equal[index]
        verdict = _verdict(metric, row, differ[index], p_equal, margin, p_bootstraps[index])
        before = earlier[index] if earlier else None
        judged.append(_at_look(verdict, rows[index], before, look))
    return judged


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
    judged: list[list[Verdict]] = []
    earlier: list[Verdict] = []
    common: dict[str, Any] = {"family": family, "margin": margin, "share": share}
    for look, rows in looks:
        earlier = verdicts(metric, rows, look=look, earlier=earlier, **common)
        judged.append(earlier)
    return judged


def verdicts_before(metric: Metric, rows: Sequence[PairedScores], look: Look) -> list[Verdict]:
    """Verdicts while the first look is to come: the differences so far, and no test of them."""
    judged = []
    for row in rows:
        word: Word = "diverged" if row.diverged else ""
        if row.differences:
            word = "cannot tell"
        verdict = Verdict(metric, word, row.n, row.mean, look=look, is_early=True)
        judged.append(replace(verdict, diverged=row.diverged, ended=row.ended))
    return judged


def _at_look(verdict: Verdict, row: PairedScores, earlier: Verdict | None, look: Look) -> Verdict:
    """The verdict at a look; a settled row stays so unless its scores now speak against it."""
    if earlier is not None and not verdict.is_different and _still_holds(verdict, row, earlier):
        within = verdict.is_within_margin or earlier.is_within_margin
        verdict = replace(verdict, word=earlier.word, is_within_margin=within)
    settled_at = None
    if verdict.is_settled:
        settled_at = (earlier and earlier.settled_at) or look.number
    return replace(verdict, look=look, settled_at=settled_at)


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
    compared: Comparison,
    difference: tuple[float, float],
    p_equal: float,
    margin: float | None,
    p_bootstrap: float,
) -> Verdict:
    """The verdict on a row, by p values after Holm's correction: of `difference`, with the level of
    its test; `p_equal`, of a difference below the margin; and that of the bootstrap.
    """
    row, (p_different, level) = compared.row, difference
    within = False
    if compared.noise is not None:
        p_own = compared.p_equivalent(margin or 0.0)[1]
        within = p_equal < LEVEL and p_own < compared.noise.own_level
    verdict = Verdict(
        metric,
        _word(metric, compared, p_different, within),
        row.n,
        row.mean,
        diverged=row.diverged,
        ended=row.ended or row.n + row.diverged,
        margin=margin,
        is_within_margin=within,
        shift=row.shift,
        least=row.least + row.shift,
    )
    if compared.bootstrap is not None:
        bootstrap = compared.bootstrap
        low, high = metric.bounded(bootstrap.low, bootstrap.high, verdict.least)
        bootstrap = replace(bootstrap, low=low, high=high)
        verdict = replace(verdict, bootstrap=bootstrap, p_bootstrap=p_bootstrap)
    if compared.noise is None or row.mean is None:
        return verdict
    return replace(
        verdict,
        seed_test=compared.seed_test(level),
        p_seeds=p_different,
        minimum_detectable=compared.detectable(level, row.n),
        needed=partial(compared.more_seeds, level),
    )


def _word(metric: Metric, compared: Comparison, adjusted: float, within: bool) -> Word:
    row = compared.row
    if row.mean is None:
        if not row.diverged:
            return ""
        always = row.diverged == row.ended > 1 and not row.pending
        return "worse" if always and row.base_ended and not row.base_diverged else "diverged"
    if adjusted < LEVEL and row.diverged > row.base_diverged:
        return "worse"  # by its scores or by its divergence
    if row.n == 1:
        return "cannot tell"
    if row.is_constant_zero and not row.diverged:
        return "no difference"
    if adjusted < LEVEL and compared.is_beyond_own_noise(row.mean):
        return "better" if metric.is_better(row.mean) else "worse"
    return "as good as base" if within else "cannot tell"
