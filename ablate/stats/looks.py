"""Looks: the numbers of seeds at which a study is judged, planned before its first run.

A study that is judged with 3, 5 and 8 seeds, each time at 0.05, has a false verdict in more than
5 % of all studies. Therefore each look has a part of the 0.05, in proportion to its new seeds: 3/8,
2/8 and 3/8. This is the uniform error spending function alpha(t) = alpha t, where t is the fraction
of all seeds. The probability of a false verdict at any look is at most the sum of the parts, even
though the looks depend on each other (Bonferroni's inequality).

Two other rules were tried and not adopted; benchmarks/verdicts.py measures both. Boundaries from
the joint normal distribution of the looks have larger levels, but t statistics of few seeds depend
less on each other, so the error of the t test is above 0.05. The function that approximates O'Brien
and Fleming's test gives 0.0014 to 3 of 8 seeds: with 2 degrees of freedom, t must exceed 27, and
the first look has almost no power.

Source: Lan and DeMets, "Discrete Sequential Boundaries for Clinical Trials", Biometrika 70 (1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ablate.stats.significance import LEVEL


@dataclass(frozen=True)
class Look:
    """One of the looks of a study.

    number: from 1.
    plan: number of seeds at each look of the study, increasing.
    """

    number: int
    plan: tuple[int, ...]

    @property
    def is_only(self) -> bool:
        """Whether the study is judged once, with all its seeds."""
        return len(self.plan) == 1

    @property
    def seeds(self) -> int:
        """Number of seeds at this look."""
        return self.plan[self.number - 1]

    @property
    def spent(self) -> float:
        """Part of the level that is spent up to this look; LEVEL at the last look."""
        return LEVEL * (self.seeds / self.plan[-1])

    @property
    def level(self) -> float:
        """Part of the level that this look spends, which is the level of its verdicts."""
        earlier_seeds = (0, *self.plan)[self.number - 1]
        # The fraction is computed first: for a single look it is exactly 1, and the level LEVEL.
        return LEVEL * ((self.seeds - earlier_seeds) / self.plan[-1])

    def as_json(self) -> dict[str, float]:
        """The look as JSON."""
        return {"seeds": self.seeds, "level": self.level, "spent": self.spent}

    @property
    def text(self) -> str:
        """`look 1 of 3 (3 of 8 seeds)`."""
        return f"look {self.number} of {len(self.plan)} ({self.seeds} of {self.plan[-1]} seeds)"


SINGLE_LOOK = Look(1, (1,))  # of a study that is judged once, with any number of seeds


def planned_looks(plan: Sequence[int]) -> tuple[Look, ...]:
    """The looks with these numbers of seeds."""
    return tuple(Look(number, tuple(plan)) for number in range(1, len(plan) + 1))
