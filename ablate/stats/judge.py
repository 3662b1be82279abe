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
from typing import Any, NamedTuple

from ablate.stats.comparison import Comparison, PairedScores, compare
from ablate.stats.looks import ONCE, Look
from ablate.stats.metrics import Metric
from ablate.stats.significance import LEVEL, holm_levels
from ablate.stats.verdict import DIFFERENT, SETTLED, Verdict, Word


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
        adjusted = _Adjusted(*differ[index], equal[index][0], p_bootstraps[index])
        before = earlier[index] if earlier else None
        judged.append(_verdict(metric, row, adjusted, margin, look, before))
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

    different: of the difference, with the `level` of its test.
    equal: of a difference below the margin.
    bootstrap: of the bootstrap over test sentences.
    """

    different: float
    level: float
    equal: float
    bootstrap: float


def _verdict(
    metric: Metric,
    compared: Comparison,
    adjusted: _Adjusted,
    margin: float | None,
    look: Look,
    earlier: Verdict | None,
) -> Verdict:
    """The verdict on a row at a look."""
    row, noise, within = compared.row, compared.noise, False
    if noise is not None:
        p_own = compared.p_equivalent(margin or 0.0)[1]
        within = adjusted.equal < LEVEL and p_own < noise.own_level
    word = _word(metric, compared, adjusted.different, within)
    word, within, settled_at = _at_look(metric, row, word, within, look, earlier)
    least, bootstrap = row.least + row.shift, compared.bootstrap
    if bootstrap is not None:
        low, high = metric.bounded(bootstrap.low, bootstrap.high, least)
        bootstrap = replace(bootstrap, low=low, high=high)
    is_tested = noise is not None and row.mean is not None
    level = adjusted.level
    return Verdict(
        metric,
        word,
        row.n,
        row.mean,
        seed_test=compared.seed_test(level) if is_tested else None,
        p_seeds=adjusted.different if is_tested else None,
        minimum_detectable=compared.detectable(level, row.n) if is_tested else None,
        bootstrap=bootstrap,
        p_bootstrap=None if bootstrap is None else adjusted.bootstrap,
        diverged=row.diverged,
        ended=row.ended or row.n + row.diverged,
        margin=margin,
        is_within_margin=within,
        look=look,
        settled_at=settled_at,
        shift=row.shift,
        least=least,
        needed=partial(compared.more_seeds, level) if is_tested else None,
    )


def _at_look(
    metric: Metric,
    row: PairedScores,
    word: Word,
    within: bool,
    look: Look,
    earlier: Verdict | None,
) -> tuple[Word, bool, int | None]:
    """The word at a look, whether the difference is within the margin, and the number of the look
    since which the row is settled. A settled row stays so unless its scores now speak against it.
    """
    if earlier is not None and word not in DIFFERENT and _still_holds(metric, row, earlier):
        word, within = earlier.word, within or earlier.is_within_margin
    settled_at = None
    if word in SETTLED:
        settled_at = (earlier and earlier.settled_at) or look.number
    return word, within, settled_at


def _still_holds(metric: Metric, row: PairedScores, earlier: Verdict) -> bool:
    """Whether an earlier verdict agrees with the divergence and the mean so far."""
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
