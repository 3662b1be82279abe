"""A choice among configurations of a row by trials: candidates, their losses, and the best.

A row has a choice by `tune`, whose candidates are a grid; all rows together have one of their
decoding. Trials (`analysis/trials.py`) run first. Then `analysis/settle.py` gives the row its
configuration, and it is a row like any other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ablate.config import RowConfig
from ablate.formatting import setting_text
from ablate.stats.metrics import Metric

# Words of tables and JSON for every kind of choice.
KEY = "tuning"
TRIAL = "tuning run"
AWAITS = "awaits tuning"  # of a row whose trials are not complete
# Added to the ids of a row that waits for its trials, so that no run has them.
UNDECIDED = " after tuning"


@dataclass(frozen=True)
class Candidate:
    """A point of the grid.

    values: of the fields that are chosen.
    config: of the row with them.
    trial: the same for the share of steps that the trials have.
    """

    values: Mapping[str, Any]
    config: RowConfig
    trial: RowConfig

    @property
    def label(self) -> str:
        """`learning_rate=0.001`."""
        return " ".join(f"{name}={setting_text(value)}" for name, value in self.values.items())


@dataclass(frozen=True)
class Choice:
    """The candidates of a row, and the choice among them.

    losses: mean dev loss of each candidate over the seeds of the trials, in nats per token;
        infinite if one diverged. Empty until every trial of the row is complete.
    uniform: loss of uniform predictions, ln V.
    metric: of the predictions for dev that choose decoding; the losses are then its scores, with
        the sign that makes the best the smallest. None: the dev loss chooses.
    legend: what the column of chosen values says.
    by_base: whether base's trials make the choice, because the group has `tune: false`.
    """

    candidates: tuple[Candidate, ...]
    uniform: float
    losses: tuple[float, ...] = ()
    metric: Metric | None = None
    legend: str = ""
    by_base: bool = False

    def with_losses(self, losses: Sequence[Sequence[float | None]]) -> Choice:
        """The candidates with their mean losses; without any if one is missing."""
        means: list[float] = []
        for scores in losses:
            if None in scores:
                return replace(self, losses=())
            means.append(math.fsum(filter(None, scores)) / len(scores))
        return replace(self, losses=tuple(means))

    def except_for(self, names: Collection[str]) -> Choice | None:
        """The choice of the other fields; None if there are none."""
        candidates = []
        for candidate in self.candidates:
            values = {name: value for name, value in candidate.values.items() if name not in names}
            candidates.append(replace(candidate, values=values))
        return replace(self, candidates=tuple(candidates)) if candidates[0].values else None

    @property
    def chosen(self) -> Candidate | None:
        """The first candidate with the smallest loss; None until the losses are known."""
        if not self.losses:
            return None
        return self.candidates[self.losses.index(min(self.losses))]

    @property
    def edges(self) -> tuple[str, ...]:
        """Fields whose chosen value is the smallest or the largest number of their grid.

        A better value may then be outside of the grid.
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
        """Mean over the grid of min(loss, ln V), less the smallest loss, in nats per token.

        Source: Wortsman et al., "Small-scale proxies for large-scale Transformer training
        instabilities" (2023), arXiv 2309.14322, with the loss of uniform predictions in place of
        the loss at initialization. A candidate that diverged counts as ln V.
        """
        if not self.losses:
            return None
        capped = [min(loss, self.uniform) for loss in self.losses]
        return sum(capped) / len(capped) - min(capped)

    @property
    def has_diverged(self) -> bool:
        """Whether every candidate diverged, so that the choice is the first of the grid."""
        return bool(self.losses) and math.isinf(min(self.losses))

    @property
    def text(self) -> str:
        """`learning_rate=0.001 (edge)`; `awaits tuning` until the choice is made."""
        chosen = self.chosen
        if chosen is None:
            return AWAITS
        notes = list(map("edge of {}".format, self.edges))
        if self.has_diverged:
            notes = ["all diverged"]
        elif notes and len(chosen.values) == 1:
            notes = ["edge"]
        if notes:
            return f"{chosen.label} ({', '.join(notes)})"
        return chosen.label

    def as_json(self) -> dict[str, Any]:
        """The choice for scripts; losses that are infinite are null."""
        chosen = self.chosen
        losses = self.losses or (math.inf,) * len(self.candidates)
        kind, sign = "loss", 1
        content: dict[str, Any] = {"chosen": dict(chosen.values) if chosen else None}
        content["edges"] = list(self.edges)
        if self.metric is None:
            content["sensitivity"] = self.sensitivity
        else:
            kind, sign = "score", -1 if self.metric.more_is_better else 1
            content |= {"metric": self.metric.name, "split": "dev"}
        content["grid"] = []
        for candidate, loss in zip(self.candidates, losses, strict=True):
            shown = sign * loss if math.isfinite(loss) else None
            content["grid"].append({"values": dict(candidate.values), kind: shown})
        return content


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
