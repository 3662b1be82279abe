"""The verdict on a row, and its wording: worse than base, better than base, as good as base within
a margin, or undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ablate.formatting import p_text, plural, ratio
from ablate.stats.bootstrap import BootstrapTest
from ablate.stats.comparison import ScoreComparison, SeedTest
from ablate.stats.looks import SINGLE_LOOK, Look
from ablate.stats.metrics import Interval, Metric
from ablate.stats.significance import LEVEL

Word = Literal["worse", "better", "as good as base", "cannot tell", "no difference", "diverged", ""]
DIFFERENT = ("worse", "better")
# A row with one of these verdicts needs no further seeds. "diverged" is not among them: either
# seeds are pending, or base diverges too.
DECIDED = (*DIFFERENT, "as good as base", "no difference")
# Why a row is undecided; empty for a row with another verdict than "cannot tell".
Obstacle = Literal[
    "before the first look",
    "one seed",
    "no spread",
    "divergence",
    "base at chance",
    "noise",
    "",
]


@dataclass(frozen=True)
class Verdict:
    """A row compared with base in one metric.

    n: number of seeds with a score of both.
    mean: mean difference over these seeds; None without a seed.
    seed_test: test of the mean; None with fewer than two seeds, or if the differences show no
        spread.
    p_holm: p value of the pooled test after Holm's correction over the rows of the study.
    minimum_detectable: the detectable difference: the smallest true difference that is found with a
        power of 80 %, with this noise and this correction.
    bootstrap: paired bootstrap over test sentences, which does not decide the verdict. Its interval
        is clipped to the possible differences. None without scores on resampled test sets.
    p_bootstrap: p value of `bootstrap` after Holm's correction over the rows.
    diverged: number of the row's seeds that diverged.
    ended: number of the row's seeds that ended, by a score or by divergence.
    pending: number of the row's seeds that have not ended.
    margin: the study's margin of equivalence; None if it has none.
    is_within_margin: whether the difference is significantly smaller than the margin.
    look: the last look that has been judged; before the first look, this first look.
    is_early: whether no look has been judged yet.
    decided_at: number of the look at which the verdict was reached; None while the row is
        undecided.
    shift: number that was added to each difference, because base has more seeds than the row
        (`PairedScores.shift`).
    possible: the smallest and the largest possible difference (`PairedScores.possible`).
    comparison: the row with its noise, from which `more_seeds` follows; None without a test over
        seeds.
    base_has_learned: whether base scores above the level of chance. If not, further seeds would
        compare two models that have learned nothing.
    """

    metric: Metric
    word: Word
    n: int
    mean: float | None
    seed_test: SeedTest | None = None
    p_holm: float | None = None
    minimum_detectable: float | None = None
    bootstrap: BootstrapTest | None = None
    p_bootstrap: float | None = None
    diverged: int = 0
    ended: int = 0
    pending: int = 0
    margin: float | None = None
    is_within_margin: bool = False
    look: Look = SINGLE_LOOK
    is_early: bool = False
    decided_at: int | None = None
    shift: float = 0.0
    possible: Interval = (-math.inf, math.inf)
    base_has_learned: bool = True
    comparison: ScoreComparison | None = field(default=None, repr=False, compare=False)

    @cached_property
    def more_seeds(self) -> int | None:
        """Number of seeds to add so that a true difference as large as the observed one is found
        with a power of 80 %; None if the row is decided, or if no number of seeds suffices.
        """
        if self.comparison is None or self.seed_test is None or not self.base_has_learned:
            return None
        if self.obstacle != "noise":
            return None
        return self.comparison.more_seeds(self.seed_test.level)

    @property
    def obstacle(self) -> Obstacle:
        """Why the row is undecided, the first reason that holds; empty if it is not undecided."""
        test = self.seed_test
        if self.word != "cannot tell":
            return ""
        if self.is_early:
            return "before the first look"
        if self.n == 1:
            return "one seed"
        if test is None:
            return "no spread"
        if not test.low <= 0 <= test.high:
            # A significant difference decides a row, unless seeds of the row or of base diverged.
            return "divergence"
        return "noise" if self.base_has_learned else "base at chance"

    @property
    def interval(self) -> tuple[float, float] | None:
        """Confidence interval of the difference, clipped to the possible differences; None without
        a test.
        """
        test = self.seed_test
        if test is None or self.mean is None:
            return None
        return self.metric.clipped(test.low, test.high, self.possible, self.mean)

    @property
    def p_adjusted(self) -> float | None:
        """The p value to compare with 0.05: max(p_holm, p_own * 0.05 / own_level), where the second
        is the p value of the row's own test, rescaled from the level of this test to 0.05. None
        without a test.
        """
        test = self.seed_test
        if self.p_holm is None or test is None:
            return None
        return max(self.p_holm, min(1.0, test.p_own * LEVEL / test.own_level))

    @property
    def is_different(self) -> bool:
        """Whether the row is better or worse than base."""
        return self.word in DIFFERENT

    @property
    def is_decided(self) -> bool:
        """Whether the row needs no further seeds."""
        return self.word in DECIDED

    @property
    def text(self) -> str:
        """The verdict as a sentence."""
        return self.text_against("base")

    def text_against(self, reference: str) -> str:
        """The verdict as a sentence; `reference` names the row with which it is compared."""
        if self.word == "":
            return "no result yet"
        if self.n == 0:
            return self._divergence_text()
        phrases = [self._seeds_phrase(reference)]
        if self.diverged:
            phrases.append(f"{self.diverged} of {plural(self.ended, 'seed')} diverged")
        if self.n == 1 and self.bootstrap is not None and self.p_bootstrap is not None:
            side = "beyond" if self.p_bootstrap < LEVEL else "within"
            noise = f"the noise of the test {self.metric.item}s ({p_equation(self.p_bootstrap)})"
            phrases.append(f"{side} {noise}, not the seeds' noise")
        if self.decided_at is not None and not self.look.is_only:
            phrases.append(f"since {Look(self.decided_at, self.look.plan).text}")
        return "; ".join(phrases)

    def _divergence_text(self) -> str:
        """The verdict on a row without a score: `worse: diverged with 3 of 3 seeds`."""
        seeds = f"{self.diverged} of {plural(self.ended, 'seed')}"
        if self.ended == 1:
            seeds = "its only seed"
        if self.word == "diverged":
            return f"diverged with {seeds}"
        return f"{self.word}: diverged with {seeds}"

    @property
    def short(self) -> str:
        """The verdict for a cell of a table, with the margin or the detectable difference:
        `cannot tell (6.3)`.
        """
        if self.word == "as good as base":
            return f"{self.word} within {self.margin_text}"
        if self.word == "cannot tell" and self.detectable_text:
            return f"{self.word} ({self.detectable_text})"
        return self.word

    @property
    def detectable_text(self) -> str:
        """The detectable difference with the metric's number of decimals; empty if the row is
        undecided for another reason than its noise.
        """
        if self.minimum_detectable is None or self.obstacle == "divergence":
            return ""
        return self.metric.size_text(self.minimum_detectable)

    @property
    def margin_text(self) -> str:
        """The margin: `±0.5`, or `×÷1.020` for a ratio."""
        if self.margin is None:
            return ""
        return f"×÷{ratio(self.margin)}" if self.metric.is_log else f"±{self.margin:g}"

    def as_json(self) -> dict[str, Any]:
        """The verdict as JSON; null for the results of tests that were not possible."""
        low, high = self.interval or (None, None)
        test = self.seed_test
        content = {
            "verdict": self.word,
            "text": self.text,
            "n": self.n,
            "mean": self.mean,
            "std": test and test.std,
            "low": low,
            "high": high,
            "p": test and test.p,
            "p_holm": self.p_holm,
            "p_own": test and test.p_own,
            "p_adjusted": self.p_adjusted,
            "minimum_detectable": self.minimum_detectable,
            "more_seeds": self.more_seeds,
            "margin": self.margin,
            "within_margin": self.is_within_margin,
            "diverged": self.diverged,
        }
        if not self.look.is_only:
            content["decided_at_look"] = self.decided_at
        content["test_set"] = None
        if (bootstrap := self.bootstrap) is not None:
            content["test_set"] = {
                "low": bootstrap.low,
                "high": bootstrap.high,
                "p": bootstrap.p,
                "p_holm": self.p_bootstrap,
            }
        return content

    def _seeds_phrase(self, reference: str) -> str:
        """The verdict with the reason, by the tests over seeds."""
        title = self.metric.title
        if self.word == "as good as base":
            return f"as good as {reference} within {self.margin_text} {title}"
        if self.word != "cannot tell":
            if not self.is_within_margin:
                return self.word
            return f"{self.word}, but within {self.margin_text} {title} of {reference}"
        match self.obstacle:
            case "before the first look":
                return f"cannot tell before {self.look.text}"
            case "one seed":
                return "cannot tell: one seed shows no spread"
            case "no spread":
                return f"cannot tell: the differences show no spread in {title}"
            case "divergence":
                condition = "over the seeds that did not diverge"
                return f"cannot tell: the difference is significant only {condition}"
            case "base at chance":
                return f"cannot tell: {reference} has learned nothing, and needs more steps"
        detectable = f"detectable difference: {self.detectable_text} {title}"
        finding = "no number of seeds detects a true difference as large as observed"
        if self.more_seeds is not None:
            finding = (
                f"detecting a true difference as large as observed takes {self.more_seeds_text}"
            )
        return f"cannot tell ({detectable}; {finding})"

    @property
    def more_seeds_text(self) -> str:
        """Seeds that would detect a true difference as large as observed: `about 2 more seeds` if
        the study has them still to run, now or at a later look. Otherwise `a new study of 7 seeds`,
        because adding seeds until a verdict is reached would raise the probability of a false one.
        Empty if `more_seeds` is None.
        """
        if self.more_seeds is None:
            return ""
        still_to_run = self.pending + self.look.plan[-1] - self.look.seeds
        if self.more_seeds <= still_to_run:
            return f"about {plural(self.more_seeds, 'more seed')}"
        return f"a new study of {plural(self.n + self.more_seeds, 'seed')}"


def joint_word(verdicts: Sequence[Verdict]) -> str:
    """Join the verdicts on a row by several metrics: `worse` if all metrics agree, `worse by PPL`
    if the other metrics are undecided, `better by PPL, worse by BLEU` if the metrics disagree.
    """
    titles: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.word not in ("", "cannot tell"):
            titles.setdefault(verdict.word, []).append(verdict.metric.title)
    if not titles:
        is_undecided = any(verdict.word == "cannot tell" for verdict in verdicts)
        return "cannot tell" if is_undecided else ""
    phrases = []
    for word, metric_titles in titles.items():
        if len(metric_titles) == len(verdicts):
            return word
        short = "as good" if word == "as good as base" else word
        phrases.append(f"{short} by {' and '.join(metric_titles)}")
    return ", ".join(phrases)


def joint_short(verdicts: Sequence[Verdict]) -> str:
    """Join the verdicts by several metrics for a cell of a table, with the detectable difference
    of each metric if the row is undecided by all.
    """
    if len(verdicts) == 1:
        return verdicts[0].short
    word = joint_word(verdicts)
    sizes = []
    for verdict in verdicts:
        if verdict.detectable_text:
            sizes.append(f"{verdict.detectable_text} {verdict.metric.title}")
    if word == "cannot tell" and sizes:
        word += f" ({', '.join(sizes)})"
    return word


def p_equation(p: float) -> str:
    """`p = 0.03`, `p < 0.001`; with more digits if the rounded value would equal the level."""
    if p < 0.001:
        return "p < 0.001"
    if p != LEVEL and round(p, 3) == LEVEL:
        return f"p = {p_text(p)}"
    return f"p = {p:.2g}"
