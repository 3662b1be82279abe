"""Looks: numbers of seeds, stated beforehand, at which a study is judged, with its error spent over
them.

A study that is judged with 3, 5 and 8 seeds, each time at 0.05, names a row by chance in more than
5 % of all studies. Here each look has the part of the 0.05 that corresponds to its new seeds: 3/8,
2/8 and 3/8. This is the uniform error spending function alpha(t) = alpha t, where t is the share of
all seeds. The probability of a false verdict at any look is at most the sum, whatever the
dependence of the looks (Bonferroni's inequality).

Two other rules do not serve here. Boundaries from the joint normal distribution of the looks have
larger levels, but t statistics of few seeds depend less on each other, and the error of a t test
comes out above 0.05. The function that approximates O'Brien and Fleming's test leaves 0.0014 for 3
of 8 seeds; with 2 degrees of freedom, t must then exceed 27, and the first look sees next to
nothing. benchmarks/verdicts.py measures both.

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
        """Error that is spent up to this look, of LEVEL in all."""
        return LEVEL * (self.seeds / self.plan[-1])

    @property
    def level(self) -> float:
        """Error that this look spends: the level of its verdicts."""
        before = (0, *self.plan)[self.number - 1]
        # The fraction first: with a single look it is exactly 1, and the level exactly LEVEL.
        return LEVEL * ((self.seeds - before) / self.plan[-1])

    def as_json(self) -> dict[str, float]:
        """The look for scripts."""
        return {"seeds": self.seeds, "level": self.level, "spent": self.spent}

    @property
    def text(self) -> str:
        """`look 1 of 3 (3 of 8 seeds)`."""
        return f"look {self.number} of {len(self.plan)} ({self.seeds} of {self.plan[-1]} seeds)"


ONCE = Look(1, (1,))  # of scores that are judged once, whatever their number


def looks_of(plan: Sequence[int]) -> tuple[Look, ...]:
    """The looks with these numbers of seeds."""
    return tuple(Look(number, tuple(plan)) for number in range(1, len(plan) + 1))
