"""Verdict on each row: better or worse than base, or within noise.

Two sources of noise are tested apart: another seed gives another score (paired t test over seeds), and other test
sentences give another score (paired bootstrap). A row is better or worse only if both tests are significant after
Holm's correction over the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ablate.config.metrics import Metric
from ablate.stats.bootstrap import RESAMPLES, BootstrapTest, paired_bootstrap
from ablate.stats.tests import (
    LEVEL,
    PairedTTest,
    holm,
    holm_factors,
    minimum_detectable_difference,
    paired_t_test,
)

Word = Literal["worse", "better", "within noise", "no difference", "cannot tell", "diverged", ""]


@dataclass(frozen=True)
class PairedScores:
    """Scores of a row and of base in one metric, paired by seed.

    differences: row - base by seed, for the seeds that both have.
    resamples: scores of the row and of base on the resampled test sets, by seed; empty without them.
    diverged: number of the row's seeds that diverged and have no score.
    """

    differences: Mapping[int, float] = field(default_factory=dict)
    resamples: Mapping[int, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    diverged: int = 0


@dataclass(frozen=True)
class Verdict:
    """A row compared with base in one metric.

    n: number of seeds that both have.
    mean: mean difference over these seeds; None without any.
    seed_test: paired t test over seeds; None below two seeds.
    p_seeds: its p value after Holm's correction over the rows.
    minimum_detectable: smallest mean difference that is significant at this spread and correction.
    bootstrap: paired bootstrap over test sentences; None without resampled scores.
    p_bootstrap: its p value after Holm's correction over the rows.
    diverged: number of the row's seeds that diverged.
    """

    metric: Metric
    word: Word
    n: int
    mean: float | None
    seed_test: PairedTTest | None = None
    p_seeds: float | None = None
    minimum_detectable: float | None = None
    bootstrap: BootstrapTest | None = None
    p_bootstrap: float | None = None
    diverged: int = 0

    @property
    def text(self) -> str:
        """The verdict as a sentence."""
        if self.word == "":
            return "no result yet"
        if self.word == "diverged":
            return "diverged"
        parts = [self._over_seeds(), *self._over_sentences()]
        if self.diverged:
            parts.append(f"{self.diverged} more {'seed' if self.diverged == 1 else 'seeds'} diverged")
        return "; ".join(parts)

    @property
    def minimum_detectable_text(self) -> str:
        """The minimum detectable difference, rounded for the metric; `>100` if the metric cannot differ by so much."""
        if self.minimum_detectable is None:
            return ""
        if self.metric.of_100 and self.minimum_detectable > 100:
            return ">100"
        return f"{self.minimum_detectable:.{self.metric.digits}f}"

    def _over_seeds(self) -> str:
        if self.seed_test is None:
            return "cannot tell: one seed shows no spread"
        if self.word == "within noise" and self.minimum_detectable is not None and not self.is_test_set_noise:
            detectable = f"{self.minimum_detectable_text} {self.metric.title}"
            return f"within noise (smallest difference this study could see: {detectable})"
        return self.word

    def _over_sentences(self) -> list[str]:
        if self.bootstrap is None or self.p_bootstrap is None:
            return []
        if self.seed_test is None:
            noise, p = "beyond" if self.p_bootstrap < LEVEL else "within", p_text(self.p_bootstrap)
            return [f"{noise} the noise of the test sentences ({p}), which is not the seeds' noise"]
        if self.is_test_set_noise:
            return [f"steady over seeds, not over test sentences ({p_text(self.p_bootstrap)})"]
        return []

    @property
    def is_test_set_noise(self) -> bool:
        """Whether the difference is significant over seeds, but not over test sentences."""
        return self.word == "within noise" and self.p_seeds is not None and self.p_seeds < LEVEL


def p_text(p: float) -> str:
    """`p = 0.03`, `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def verdicts(metric: Metric, rows: Sequence[PairedScores]) -> list[Verdict]:
    """Verdict of each row. Holm's correction covers all the rows that can be tested."""
    seed_tests = [paired_t_test(list(row.differences.values())) for row in rows]
    bootstraps = [_bootstrap(row) for row in rows]
    if sum(test is not None for test in bootstraps) >= LEVEL * RESAMPLES:
        # With so many rows, even the smallest p value of the bootstrap, 1 / (RESAMPLES + 1), cannot be significant.
        bootstraps = [None] * len(rows)
    p_seeds = _adjusted([test.p if test else None for test in seed_tests])
    p_bootstraps = _adjusted([test.p if test else None for test in bootstraps])
    factors = iter(holm_factors([test.p for test in seed_tests if test]))
    result = []
    for row, seed_test, bootstrap, p_seed, p_bootstrap in zip(
        rows, seed_tests, bootstraps, p_seeds, p_bootstraps, strict=True
    ):
        n = len(row.differences)
        mean = sum(row.differences.values()) / n if n else None
        detectable = minimum_detectable_difference(seed_test, LEVEL / next(factors)) if seed_test else None
        word = _word(metric, row, mean, p_seed, p_bootstrap)
        result.append(
            Verdict(metric, word, n, mean, seed_test, p_seed, detectable, bootstrap, p_bootstrap, row.diverged)
        )
    return result


def _bootstrap(row: PairedScores) -> BootstrapTest | None:
    """Bootstrap the mean over seeds; None unless every seed with a difference has resampled scores."""
    if not row.differences or row.resamples.keys() != row.differences.keys():
        return None
    mean = sum(row.differences.values()) / len(row.differences)
    return paired_bootstrap(mean, list(row.resamples.values()))


def _adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's correction of the p values that are not None."""
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(adjusted) for p in p_values]


def _word(
    metric: Metric, row: PairedScores, mean: float | None, p_seeds: float | None, p_bootstrap: float | None
) -> Word:
    if mean is None:
        return "diverged" if row.diverged else ""
    if p_seeds is None:
        return "cannot tell"
    # Equal scores for every seed, as for a row that differs only in a setting without effect on the metric.
    if not any(row.differences.values()):
        return "no difference"
    if p_seeds >= LEVEL or (p_bootstrap is not None and p_bootstrap >= LEVEL):
        return "within noise"
    return "better" if metric.is_better(mean) else "worse"
