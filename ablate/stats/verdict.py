"""Each row against base, in numbers and in a word.

Two kinds of noise are kept apart. Training again with another seed gives another score: that is what the paired t test
over seeds speaks of. Other test sentences would give another score too: that is what the bootstrap speaks of. A row is
worse or better only if its difference stands out from both, after Holm's correction over the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ablate.config.metrics import Metric
from ablate.stats.bootstrap import RESAMPLES, Resampled, paired_bootstrap
from ablate.stats.holm import factors, holm
from ablate.stats.paired import LEVEL, Difference, least_told, paired

Word = Literal["worse", "better", "within noise", "no difference", "cannot tell", "diverged", ""]


@dataclass(frozen=True)
class Compared:
    """A row and base in one metric: what a verdict is made from.

    differences: by seed, row less base, of the seeds that both have.
    resamples: by seed, the scores of row and of base on the resampled test sets; none where there are none.
    diverged: how many of the row's seeds have diverged, and so have no score.
    """

    differences: Mapping[int, float] = field(default_factory=dict)
    resamples: Mapping[int, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    diverged: int = 0


@dataclass(frozen=True)
class Verdict:
    """A row against base in one metric.

    seeds: the paired t test; None below two seeds. p_seeds: its p value corrected over the rows.
    least: the least difference that would have been told at this spread and this correction.
    test: the bootstrap; None where translations are not there. p_test: its p value corrected over the rows.
    n, mean: seeds that both have, and their mean difference; one seed has one too.
    """

    metric: Metric
    word: Word
    n: int
    mean: float | None
    seeds: Difference | None = None
    p_seeds: float | None = None
    least: float | None = None
    test: Resampled | None = None
    p_test: float | None = None
    diverged: int = 0

    @property
    def text(self) -> str:
        """The verdict in words, complete without a table around it."""
        if self.word == "":
            return "no result yet"
        if self.word == "diverged":
            return "diverged"
        parts = [self._over_seeds(), *self._on_test_set()]
        if self.diverged:
            parts.append(f"{self.diverged} more {'seed' if self.diverged == 1 else 'seeds'} diverged")
        return "; ".join(parts)

    @property
    def least_text(self) -> str:
        """The least difference that would have been told; `>100` where no difference of such a score is so large."""
        if self.least is None:
            return ""
        return ">100" if self.metric.of_100 and self.least > 100 else f"{self.least:.{self.metric.digits}f}"

    def _over_seeds(self) -> str:
        if self.seeds is None:
            return "cannot tell: one seed shows no spread"
        if self.word == "within noise" and self.least is not None and not self.is_test_set_noise:
            return f"within noise (smallest difference this study could see: {self.least_text} {self.metric.title})"
        return self.word

    def _on_test_set(self) -> list[str]:
        if self.test is None or self.p_test is None:
            return []
        if self.seeds is None:
            noise = "beyond" if self.p_test < LEVEL else "within"
            return [f"{noise} the noise of the test sentences ({p_text(self.p_test)}), which is not the seeds' noise"]
        if self.is_test_set_noise:
            return [f"steady over seeds, not over test sentences ({p_text(self.p_test)})"]
        return []

    @property
    def is_test_set_noise(self) -> bool:
        """Whether only the test set's noise keeps the row from another word."""
        return self.word == "within noise" and self.p_seeds is not None and self.p_seeds < LEVEL


def p_text(p: float) -> str:
    """`p = 0.03`, `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def verdicts(metric: Metric, rows: Sequence[Compared]) -> list[Verdict]:
    """Each row's verdict, corrected over all the rows that can be tested."""
    seeds = [paired(list(row.differences.values())) for row in rows]
    tests = [_bootstrap(row) for row in rows]
    if sum(test is not None for test in tests) >= LEVEL * RESAMPLES:
        tests = [None] * len(rows)  # not even the smallest p value would be left below the level
    p_seeds = _corrected([one.p if one else None for one in seeds])
    p_tests = _corrected([one.p if one else None for one in tests])
    tested = [one.p for one in seeds if one]
    multipliers = iter(factors(tested))
    found = []
    for row, over_seeds, test, p_seed, p_test in zip(rows, seeds, tests, p_seeds, p_tests, strict=True):
        n = len(row.differences)
        mean = sum(row.differences.values()) / n if n else None
        least = least_told(over_seeds, LEVEL / next(multipliers)) if over_seeds else None
        word = _word(metric, row, mean, p_seed, p_test)
        found.append(Verdict(metric, word, n, mean, over_seeds, p_seed, least, test, p_test, row.diverged))
    return found


def _bootstrap(row: Compared) -> Resampled | None:
    """The bootstrap of the mean over seeds; it needs the resamples of every seed that has a difference."""
    if not row.differences or row.resamples.keys() != row.differences.keys():
        return None
    mean = sum(row.differences.values()) / len(row.differences)
    return paired_bootstrap(mean, list(row.resamples.values()))


def _corrected(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's correction of the p values that there are."""
    corrected = iter(holm([p for p in ps if p is not None]))
    return [None if p is None else next(corrected) for p in ps]


def _word(metric: Metric, row: Compared, mean: float | None, p_seeds: float | None, p_test: float | None) -> Word:
    if mean is None:
        return "diverged" if row.diverged else ""
    if p_seeds is None:
        return "cannot tell"
    if not any(row.differences.values()):
        return "no difference"
    if p_seeds >= LEVEL or (p_test is not None and p_test >= LEVEL):
        return "within noise"
    return "better" if metric.is_better(mean) else "worse"
