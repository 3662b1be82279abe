"""Groups with `prune`: a recipe of many parts, of which those that do nothing are removed.

Base is the recipe. Its screen trains a fraction of the subsets of its parts, as trials with seeds
of their own. The row `pruned` lacks each part without which the dev loss hardly rises, and is
compared with base by the seeds of the study. benchmarks/pruning.py measures which recipes this
recovers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from ablate.stats.factorial import Estimate, Fraction, effects
from ablate.study.choice import Candidate, Choice

SHARE = 0.25  # of the margin; a part is kept if the loss without it rises by as much
RESOLUTION = 4  # main effects have no interaction of two parts as alias


@dataclass(frozen=True)
class Pruning(Choice):
    """The screen of a recipe; its candidates are the cells of a fraction.

    fraction: of the subsets of the parts; at the high level a part is removed.
    margin: dev loss, in nats per token, that the pruned recipe may lose.
    without: the recipe without some parts.
    by_seed: losses of each cell by seed, ln V where a run diverged. Empty until all are complete.
    """

    fraction: Fraction = field(kw_only=True)
    margin: float = field(kw_only=True)
    without: Callable[[frozenset[str]], Candidate] = field(kw_only=True, repr=False, compare=False)
    by_seed: tuple[tuple[float, ...], ...] = field(default=(), kw_only=True)
    has_grid: ClassVar[bool] = False

    def with_losses(self, losses: Sequence[Sequence[float | None]]) -> Pruning:
        """The screen with the losses of its runs, as `Choice` takes them."""
        means, by_seed = super().with_losses(losses).losses, []
        for of_cell in losses if means else ():
            by_seed.append(tuple(min(loss, self.uniform) for loss in of_cell if loss is not None))
        return replace(self, losses=means, by_seed=tuple(by_seed))

    @cached_property
    def rises(self) -> dict[str, Estimate]:
        """By part, the mean rise of the loss without it; empty until the screen is complete."""
        rises: dict[str, Estimate] = {}
        if self.by_seed:
            for estimate in effects(self.fraction, self.by_seed):
                if len(estimate.effect) == 1:
                    rises[min(estimate.effect)] = estimate
        return rises

    @property
    def removed(self) -> frozenset[str]:
        """The parts that the pruned recipe lacks."""
        limit = SHARE * self.margin
        return frozenset(part for part, rise in self.rises.items() if rise.value < limit)

    @cached_property
    def chosen(self) -> Candidate | None:
        """The pruned recipe; None until the screen is complete."""
        return self.without(self.removed) if self.by_seed else None

    def as_json(self) -> dict[str, Any]:
        """The screen for scripts."""
        parts = []
        for part, rise in self.rises.items():
            numbers = {"rise": rise.value, "low": rise.low, "high": rise.high}
            is_removed = part in self.removed
            parts.append({"part": part, "removed": is_removed, **numbers, "p_holm": rise.p_holm})
        return {**super().as_json(), "margin": self.margin, "parts": parts}
