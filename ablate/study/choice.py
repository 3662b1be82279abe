"""A choice of the configuration of a row by tuning runs: the candidates, their losses, and the
best candidate.

With `tune`, each row has a choice among the points of a grid, and all rows have the same choice of
decoding. The tuning runs (`analysis/tuning_runs.py`) are executed first. Then `analysis/choices.py`
sets the configuration of the row, and from then on it is a row like any other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ablate.config import RowConfig
from ablate.formatting import setting_text
from ablate.stats.metrics import Metric

# Words in tables and JSON for every kind of choice.
TUNING = "tuning"
TUNING_RUN = "tuning run"
AWAITS = "awaits tuning"  # shown in place of the choice until all tuning runs are complete
# Part of the run ids of a row that waits for its tuning runs. They differ from all real ids.
AFTER_TUNING = " after tuning"


@dataclass(frozen=True)
class Candidate:
    """A point of the grid.

    values: values of the chosen fields, by field.
    config: configuration of the row with these values.
    trained: configuration of the tuning run, which may have fewer steps; `config` itself if the
        candidate has no tuning run.
    """

    values: Mapping[str, Any]
    config: RowConfig
    trained: RowConfig

    @property
    def label(self) -> str:
        """`learning_rate=0.001`."""
        return " ".join(f"{name}={setting_text(value)}" for name, value in self.values.items())


@dataclass(frozen=True)
class Choice:
    """The candidates of a row, and the choice among them.

    candidates: candidates in the order of the grid.
    uniform_loss: loss of uniform predictions, ln V, for `sensitivity`; None if the choice has no
        sensitivity.
    losses: loss of each candidate; the smallest is the best: the mean dev loss over the seeds of
        the tuning runs, in nats per token, infinite if one of them diverged. For decoding, the mean
        dev score in `metric`, negated if more is better. Empty until every tuning run is complete.
    metric: metric that chooses the decoding; None if the dev loss chooses.
    legend: line below the table that explains the column of chosen values.
    trainings: seeds and steps of the tuning runs, as text; empty for decoding.
    by_base: whether base's tuning runs make the choice, because the group has `tune: false`.
    """

    candidates: tuple[Candidate, ...]
    uniform_loss: float | None = None
    losses: tuple[float, ...] = ()
    metric: Metric | None = None
    legend: str = ""
    trainings: str = ""
    by_base: bool = False

    def with_losses(self, losses: Sequence[Sequence[float | None]]) -> Choice:
        """The choice with the mean loss of each candidate; without losses if one is None.

        `losses` has a list for each candidate, with the loss of each tuning run, or None if it is
        missing.
        """
        means: list[float] = []
        for losses_of_candidate in losses:
            known = [loss for loss in losses_of_candidate if loss is not None]
            if len(known) < len(losses_of_candidate):
                return replace(self, losses=())
            means.append(math.fsum(known) / len(known))
        return replace(self, losses=tuple(means))

    def without_fields(self, names: Collection[str]) -> Choice | None:
        """The choice without these fields; None if no field is left."""
        candidates = []
        for candidate in self.candidates:
            values = {name: value for name, value in candidate.values.items() if name not in names}
            candidates.append(replace(candidate, values=values))
        return replace(self, candidates=tuple(candidates)) if candidates[0].values else None

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields that the choice sets."""
        return tuple(self.candidates[0].values)

    @property
    def chosen(self) -> Candidate | None:
        """The first candidate with the smallest loss; None until the losses are known."""
        if not self.losses:
            return None
        return self.candidates[self.losses.index(min(self.losses))]

    @property
    def edges(self) -> tuple[str, ...]:
        """The fields whose chosen value is the smallest or the largest number of the grid, so that
        a better value may be outside of the grid.
        """
        edges: list[str] = []
        if self.chosen is None:
            return ()
        for name, value in self.chosen.values.items():
            grid = (candidate.values[name] for candidate in self.candidates)
            numbers = set(filter(_is_number, grid))
            if _is_number(value) and len(numbers) > 1 and value in (min(numbers), max(numbers)):
                edges.append(name)
        return tuple(edges)

    @property
    def sensitivity(self) -> float | None:
        """The mean of min(loss, ln V) over the grid minus its smallest value, in nats per token.

        A candidate that diverged counts as ln V.

        Source: Wortsman et al., "Small-scale proxies for large-scale Transformer training
        instabilities" (2023), arXiv 2309.14322. They cap losses at the loss at initialization; here
        the cap is the loss of uniform predictions, ln V.
        """
        if not self.losses or self.uniform_loss is None:
            return None
        capped = [min(loss, self.uniform_loss) for loss in self.losses]
        return sum(capped) / len(capped) - min(capped)

    @property
    def has_diverged(self) -> bool:
        """Whether every candidate diverged, so that the first candidate is chosen."""
        return bool(self.losses) and math.isinf(min(self.losses))

    @property
    def text(self) -> str:
        """`learning_rate=0.001 (edge)`; `awaits tuning` until the choice is made."""
        chosen = self.chosen
        if chosen is None:
            return AWAITS
        notes = [f"edge of {name}" for name in self.edges]
        if self.has_diverged:
            notes = ["all diverged"]
        elif notes and len(chosen.values) == 1:
            notes = ["edge"]
        if notes:
            return f"{chosen.label} ({', '.join(notes)})"
        return chosen.label

    def as_json(self) -> dict[str, Any]:
        """The choice as JSON values; infinite losses are null."""
        chosen = self.chosen
        losses = self.losses or (math.inf,) * len(self.candidates)
        kind = "loss"
        sign = 1
        content: dict[str, Any] = {"chosen": dict(chosen.values) if chosen else None}
        content["edges"] = list(self.edges)
        if self.metric is None:
            content["sensitivity"] = self.sensitivity
        else:
            kind = "score"
            sign = -1 if self.metric.more_is_better else 1  # `losses` has negated scores
            content |= {"metric": self.metric.name, "split": "dev"}
        content["grid"] = []
        for candidate, loss in zip(self.candidates, losses, strict=True):
            shown = sign * loss if math.isfinite(loss) else None
            content["grid"].append({"values": dict(candidate.values), kind: shown})
        return content


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
