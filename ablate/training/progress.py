"""Progress of a training: the steps made, early stopping, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ablate.store.records import TrainingState


@dataclass
class TrainingProgress:
    """Number of steps made, and the state of early stopping.

    step: number of optimizer steps made.
    tokens: number of target tokens trained on, without padding.
    best_perplexity: lowest dev perplexity so far; None before the first evaluation.
    best_step: step of `best_perplexity`.
    evaluations_since_best: number of evaluations after `best_step`.

    `patience`, an argument of the methods, is the number of evaluations without a better dev
    perplexity after which training stops early; None for no early stopping.
    """

    step: int = 0
    tokens: int = 0
    best_perplexity: float | None = None
    best_step: int = 0
    evaluations_since_best: int = 0

    @classmethod
    def at(cls, state: TrainingState) -> TrainingProgress:
        """The progress that a checkpoint has stored."""
        return cls(
            step=state.step,
            tokens=state.tokens,
            best_perplexity=state.best_perplexity,
            best_step=state.best_step,
            evaluations_since_best=state.evaluations_since_best,
        )

    def add_evaluation(self, perplexity: float) -> None:
        """Count an evaluation after the last step. Among equal perplexities, the earliest is the
        best.
        """
        if self.best_perplexity is None or perplexity < self.best_perplexity:
            self.best_perplexity = perplexity
            self.best_step = self.step
            self.evaluations_since_best = 0
        else:
            self.evaluations_since_best += 1

    def stops_early(self, patience: int | None) -> bool:
        """Whether the last evaluations have exhausted the patience."""
        return patience is not None and self.evaluations_since_best >= patience

    def chosen_step(self, patience: int | None) -> int:
        """The step whose weights are used: with early stopping the best step, else the last."""
        return self.step if patience is None else self.best_step


@dataclass(frozen=True)
class TrainingOutcome:
    """The outcome of a finished training.

    last_step: number of optimizer steps made.
    chosen_step: step whose weights are used; see `TrainingProgress.chosen_step`.
    tokens: number of target tokens trained on, without padding.
    """

    last_step: int
    chosen_step: int
    tokens: int


class Diverged(Exception):  # noqa: N818
    """The loss is not finite, or has exploded. A diverged run is a result, not a failure."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        self.reason = reason
