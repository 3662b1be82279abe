"""Verdict on one row: worse or better than base, as good as base within a margin, or not known; and
its wording.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ablate.formatting import p_text, plural, ratio
from ablate.stats.bootstrap import BootstrapTest
from ablate.stats.comparison import SeedTest
from ablate.stats.looks import ONCE, Look
from ablate.stats.metrics import Metric
from ablate.stats.significance import LEVEL, POWER

Word = Literal["worse", "better", "as good as base", "cannot tell", "no difference", "diverged", ""]
DIFFERENT = ("worse", "better")
SETTLED = (*DIFFERENT, "as good as base", "no difference")  # more seeds are not needed
EARLY = "before the first look"  # of rows that are not judged yet


@dataclass(frozen=True)
class Verdict:
    """A row compared with base in one metric.

    n: number of seeds that both have.
    mean: mean difference over these seeds; None without any.
    seed_test: test of the mean; None below two seeds, or if the seeds show no spread.
    p_seeds: its p value after Holm's correction over the rows of the study.
    minimum_detectable: true difference that is found with a probability of 80 % with this noise
        and correction.
    bootstrap: paired bootstrap over test sentences, a statement of its own, with an interval as far
        as scores can differ; None without resampled scores.
    p_bootstrap: its p value after Holm's correction over the rows.
    diverged: number of the row's seeds that diverged; `ended`: of all its seeds that have ended.
    margin: the study's margin of equivalence; None if it has none.
    is_within_margin: whether the difference is significantly smaller than the margin.
    look: the last look of the study that has been judged, or the first one while it is to come
        (`is_early`).
    settled_at: number of the look since which the row is settled; None if it is not.
    shift: what the seeds that only base has add to the difference with each seed.
    least: the smallest difference that can be, of scores that are not below 0 on the metric's
        scale.
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
    look: Look = ONCE
    is_early: bool = False
    settled_at: int | None = None
    shift: float = 0.0
    least: float = -math.inf
    needed: Callable[[], int | None] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def more_seeds(self) -> int | None:
        """Seeds to add so that a difference as large as the observed one is found with a
        probability of 80 %; None if no number would do.
        """
        if self.needed is None or self.word != "cannot tell" or self.is_of_survivors:
            return None
        return self.needed()

    @property
    def interval(self) -> tuple[float, float] | None:
        """Interval of the difference, as far as scores can differ; None without a test, and if it
        holds every difference: the seeds do not tell.
        """
        test = self.seed_test
        if test is None or self.mean is None:
            return None
        return self.metric.telling(test.low, test.high, self.least, self.mean)

    @property
    def is_blind(self) -> bool:
        """Whether there is a test, and its interval holds every difference that scores can have."""
        return self.seed_test is not None and self.interval is None

    @property
    def is_of_survivors(self) -> bool:
        """Whether the difference is significant over the seeds that did not diverge, and undecided
        because of these.
        """
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
        return self.word in DIFFERENT

    @property
    def is_settled(self) -> bool:
        """Whether more seeds are not needed."""
        return self.word in SETTLED

    @property
    def text(self) -> str:
        """The verdict as a sentence."""
        return self.text_against("base")

    def text_against(self, reference: str) -> str:
        """The verdict as a sentence that calls the row compared against `reference`."""
        if self.word == "":
            return "no result yet"
        if self.n == 0:
            seeds = f"{self.diverged} of {plural(self.ended, 'seed')}"
            if self.ended == 1:
                seeds = "its only seed"
            before = "" if self.word == "diverged" else f"{self.word}: "
            return f"{before}diverged with {seeds}"
        phrases = [self._over_seeds(reference)]
        if self.diverged:
            phrases.append(f"{self.diverged} of {plural(self.ended, 'seed')} diverged")
        if self.n == 1 and self.bootstrap is not None and self.p_bootstrap is not None:
            noise = f"the noise of the test {self.metric.item}s ({p_equation(self.p_bootstrap)})"
            side = "beyond" if self.p_bootstrap < LEVEL else "within"
            phrases.append(f"{side} {noise}, not the seeds' noise")
        if self.settled_at is not None and not self.look.is_only:
            phrases.append(f"since {Look(self.settled_at, self.look.plan).text}")
        return "; ".join(phrases)

    @property
    def short(self) -> str:
        """The verdict in a cell: `cannot tell (6.3)` with the difference that is found with a
        probability of 80 %, or with the margin.
        """
        if self.word == "as good as base":
            return f"{self.word} within {self.margin_text}"
        if self.word == "cannot tell" and self.found_text:
            return f"{self.word} ({self.found_text})"
        return self.word

    @property
    def found_text(self) -> str:
        """The minimum detectable difference; empty where it is not what the verdict lacks."""
        return "" if self.is_of_survivors or self.is_blind else self.minimum_detectable_text

    @property
    def minimum_detectable_text(self) -> str:
        """The minimum detectable difference, rounded for the metric, or to one digit where that
        would be 0.

        `>100` if the metric cannot differ by so much.
        """
        if self.minimum_detectable is None:
            return ""
        return self.metric.size_text(self.minimum_detectable)

    @property
    def margin_text(self) -> str:
        """The margin: `±0.5`, or `×÷1.020` of a ratio."""
        if self.margin is None:
            return ""
        return f"×÷{ratio(self.margin)}" if self.metric.is_log else f"±{self.margin:g}"

    def as_json(self) -> dict[str, Any]:
        """The verdict for scripts; tests that were not possible are null."""
        low, high = self.interval or (None, None)
        std = p = p_own = test_set = None
        if self.seed_test is not None:
            std, p, p_own = self.seed_test.std, self.seed_test.p, self.seed_test.p_own
        if (test := self.bootstrap) is not None:
            test_set = {"low": test.low, "high": test.high, "p": test.p, "p_holm": self.p_bootstrap}
        content = {
            "verdict": self.word,
            "text": self.text,
            "n": self.n,
            "mean": self.mean,
            "std": std,
            "low": low,
            "high": high,
            "p": p,
            "p_holm": self.p_seeds,
            "p_own": p_own,
            "p_adjusted": self.p,
            "minimum_detectable": self.minimum_detectable,
            "more_seeds": self.more_seeds,
            "margin": self.margin,
            "within_margin": self.is_within_margin,
            "diverged": self.diverged,
        }
        if not self.look.is_only:
            content["settled_at_look"] = self.settled_at
        return {**content, "test_set": test_set}

    def _over_seeds(self, reference: str) -> str:
        title = self.metric.title
        if self.word == "as good as base":
            return f"as good as {reference} within {self.margin_text} {title}"
        if self.word != "cannot tell":
            if not self.is_within_margin:
                return self.word
            return f"{self.word}, but within {self.margin_text} {title} of {reference}"
        if self.is_early:
            return f"cannot tell before {self.look.text}"
        if self.n == 1:
            return "cannot tell: one seed shows no spread"
        if self.seed_test is None or self.minimum_detectable is None:
            return f"cannot tell: the seeds show no spread in {title}"
        if self.is_of_survivors:
            over = "over the seeds that did not diverge"
            return f"cannot tell: the difference is significant only {over}"
        if self.is_blind:
            return f"cannot tell: {seeds_text(self.n)} do not tell"
        detected = f"{self.minimum_detectable_text} {title} is found with {POWER:.0%} probability"
        if self.more_seeds is None:
            return f"cannot tell ({detected}; no number of seeds would find the observed one)"
        return f"cannot tell ({detected}; {self.seeds_needed} would find the observed one)"

    @property
    def seeds_needed(self) -> str:
        """The seeds that find the observed difference: `about 2 more seeds` where a later look has
        them, else `a new study of 7 seeds`, because seeds must not be added for a result.
        """
        if self.more_seeds is None:
            return ""
        total = self.n + self.more_seeds
        if total <= self.look.plan[-1] and not self.look.is_only:
            return f"about {plural(self.more_seeds, 'more seed')}"
        return f"a new study of {plural(total, 'seed')}"


def joint_word(verdicts: Sequence[Verdict]) -> str:
    """The verdicts on one row by several metrics: `worse` by each of them, `worse by PPL` if the
    others cannot tell, `better by PPL, worse by BLEU`.
    """
    titles: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.word not in ("", "cannot tell"):
            titles.setdefault(verdict.word, []).append(verdict.metric.title)
    if not titles:
        # A metric without a score yet says less than one that cannot tell.
        return max(verdict.word for verdict in verdicts)
    parts = []
    for word, by in titles.items():
        if len(by) == len(verdicts):
            return word
        short = "as good" if word == "as good as base" else word
        parts.append(f"{short} by {' and '.join(by)}")
    return ", ".join(parts)


def joint_short(verdicts: Sequence[Verdict]) -> str:
    """The verdicts by several metrics in a cell; if none can tell, with the difference that each
    finds with a probability of 80 %.
    """
    if len(verdicts) == 1:
        return verdicts[0].short
    word, sizes = joint_word(verdicts), []
    for verdict in verdicts:
        if verdict.found_text:
            sizes.append(f"{verdict.found_text} {verdict.metric.title}")
    if word == "cannot tell" and sizes:
        word += f" ({', '.join(sizes)})"
    return word


def seeds_text(n: int) -> str:
    """`two seeds`, `5 seeds`."""
    return "two seeds" if n == 2 else plural(n, "seed")


def p_equation(p: float) -> str:
    """`p = 0.03`, `p < 0.001`; as `p_text` near the level."""
    if p < 0.001:
        return "p < 0.001"
    short = f"{p:.2g}"
    return f"p = {p_text(p) if p != LEVEL == float(short) else short}"
