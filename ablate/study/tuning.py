"""The section `tune`: a learning rate, or any named fields, chosen for each row on seeds that
verdicts do not use.

The tuning runs are a study of their own, `Study.tuning`: one row for each candidate, a share of the
steps, and no decoding, so that the test split has no part in the choice. `settle` makes the choice.
Decoding fields are chosen by the predictions of base's own runs for the dev split, `Study.on_dev`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ablate.config import DecodingConfig, RowConfig, field_names, standard_name
from ablate.config.data import RowDataConfig
from ablate.config.fields import Section, facts_of
from ablate.config.identity import NOT_IDENTITY
from ablate.config.metrics import Metric
from ablate.errors import unknown_name
from ablate.formatting import setting_text
from ablate.study.seeds import read_seeds
from ablate.study.typed import read_model
from ablate.study.yaml_nodes import Mark, Node, Report

AWAITS = "awaits tuning"  # of a row whose tuning runs are not complete
MAX_CANDIDATES = 1000  # for each row
# Fields that end the training or say how it is followed: a row must not win because it was trained
# for longer.
_OF_LENGTH = ("train_steps", "epochs", "patience", "eval_every", "checkpoint_every", *NOT_IDENTITY)
_UNTUNED = {
    **dict.fromkeys(_OF_LENGTH, "every candidate is trained and evaluated alike"),
    **dict.fromkeys(RowDataConfig.model_fields, "perplexities of other data cannot be compared"),
    **dict.fromkeys(
        DecodingConfig.model_fields,
        "candidates are scored by perplexity, without decoding; write it under `decoding`, if at "
        "all",
    ),
}
TUNED = tuple(name for name in field_names() if name not in _UNTUNED)
CHOSEN_ON_DEV = tuple(
    name for name, facts in facts_of(DecodingConfig).items() if facts.chosen_on_dev
)


def _tunable(key: str) -> str:
    name = standard_name(key)
    if name is None:
        raise ValueError(unknown_name("field", key, TUNED))
    if name in _UNTUNED:
        raise ValueError(f"{key} cannot be tuned: {_UNTUNED[name]}")
    return key


def _of_decoding(key: str) -> str:
    if standard_name(key) not in CHOSEN_ON_DEV:
        raise ValueError(unknown_name("field of decoding", key, CHOSEN_ON_DEV))
    return key


Values = Annotated[list[Any], Field(min_length=2)]


class TuneSection(Section):
    """The section `tune` as written."""

    grid: dict[Annotated[str, AfterValidator(_tunable)], Values] = Field(
        default_factory=dict,
        min_length=1,
        description="values of each field; every combination is tried",
    )
    seeds: Any = Field(
        None, description="seeds of the tuning runs; none of them may be a seed of the study"
    )
    decoding: dict[Annotated[str, AfterValidator(_of_decoding)], Values] = Field(
        default_factory=dict,
        min_length=1,
        description="values of each field of decoding; the combination with the best predictions "
        "of base for the dev split is that of every row",
    )
    steps: float = Field(1.0, gt=0, le=1, description="share of each row's train_steps; unset: 1")


@dataclass(frozen=True)
class Tune:
    """The section `tune`.

    grid: values of each field, by standard name; empty if only decoding is tuned.
    seeds: of the tuning runs.
    share: of each row's train_steps.
    decoding: values of each field of decoding, by standard name.
    """

    grid: Mapping[str, tuple[Node, ...]]
    seeds: tuple[int, ...]
    share: float
    mark: Mark
    decoding: Mapping[str, tuple[Node, ...]]

    def steps(self, train_steps: int) -> int:
        """Steps of a tuning run."""
        # Rounded up, so that a small share of few steps still trains.
        # Rounded first, because 0.55 * 100 is 55.00000000000001 in floating point.
        return max(1, math.ceil(round(self.share * train_steps, 6)))


def points(grid: Mapping[str, tuple[Node, ...]]) -> Iterator[dict[str, Node]]:
    """Yield the points of a grid, in the order of writing: the last field changes fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


@dataclass(frozen=True)
class Candidate:
    """A point of the grid.

    values: of the tuned fields.
    config: of the row with them.
    trial: the same for the share of steps that the tuning runs have.
    """

    values: Mapping[str, Any]
    config: RowConfig
    trial: RowConfig

    @property
    def label(self) -> str:
        """`learning_rate=0.001`."""
        return " ".join(f"{name}={setting_text(value)}" for name, value in self.values.items())


@dataclass(frozen=True)
class Tuning:
    """The candidates of a row, and the choice among them.

    losses: mean dev loss of each candidate over the tuning seeds, in nats per token; infinite if
        one diverged. Empty until every tuning run of the row is complete.
    uniform: loss of uniform predictions, ln V.
    metric: of the predictions for dev that choose decoding; the losses are then its scores, with
        the sign that makes the best the smallest. None: the dev loss chooses.
    """

    candidates: tuple[Candidate, ...]
    uniform: float
    losses: tuple[float, ...] = ()
    metric: Metric | None = None

    @property
    def chosen(self) -> Candidate | None:
        """The candidate with the smallest loss, the first of several; None until the losses are
        known.
        """
        return self.candidates[self.losses.index(min(self.losses))] if self.losses else None

    @property
    def edges(self) -> tuple[str, ...]:
        """Tuned fields whose chosen value is the smallest or the largest number of their grid.

        A better value may then be outside of the grid.
        """
        chosen = self.chosen
        return (
            tuple(name for name in chosen.values if self._is_edge(name, chosen.values[name]))
            if chosen
            else ()
        )

    def _is_edge(self, name: str, value: object) -> bool:
        numbers = [one for each in self.candidates if _is_number(one := each.values[name])]
        return _is_number(value) and len(set(numbers)) > 1 and value in (min(numbers), max(numbers))

    @property
    def sensitivity(self) -> float | None:
        """Mean over the grid of min(loss, ln V), less the smallest loss, in nats per token; None
        until it is known.

        Source: Wortsman et al., "Small-scale proxies for large-scale Transformer training
            instabilities" (2023),
        arXiv 2309.14322, with the loss of uniform predictions in place of the loss at
        initialization. A candidate that diverged counts as ln V.
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
        notes = (
            ["all diverged"] if self.has_diverged else [f"edge of {name}" for name in self.edges]
        )
        if len(chosen.values) == 1:
            notes = ["edge" if note.startswith("edge") else note for note in notes]
        return f"{chosen.label} ({', '.join(notes)})" if notes else chosen.label

    def as_json(self) -> dict[str, Any]:
        """The tuning for scripts; losses that are infinite are null."""
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
        grid = [
            {"values": dict(one.values), kind: sign * loss if math.isfinite(loss) else None}
            for one, loss in zip(self.candidates, losses, strict=True)
        ]
        return {**content, "grid": grid}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read_tune(node: Node, seeds: Sequence[int], report: Report) -> Tune | None:
    """Read the section `tune`, such as `{grid: {learning_rate: [3e-4, 1e-3]}, seeds: [101], steps:
    0.5}`.

    Args:
        node: of the section.
        seeds: of the study, which the tuning must not use.
        report: receives the errors; None is returned after one.
    """
    section = read_model(TuneSection, node, "tune", report)
    own: tuple[int, ...] = ()
    keys = set(node.value) if isinstance(node.value, dict) else {"decoding"}
    if not keys & {"grid", "seeds", "decoding"}:
        report(node.mark, "tune needs grid with seeds, or decoding")
    for missing, given in (("seeds", "grid"), ("grid", "seeds")):
        if given in keys and missing not in keys:
            report(node.mark, f"tune needs {missing}, because it has {given}")
    if isinstance(node.value, dict) and "seeds" in node.value:
        written = node.value["seeds"][1]
        own = read_seeds(written, report)
        for seed in written.value if own else ():
            if seed.value in seeds:
                report(
                    seed.mark,
                    f"seed {seed.value} is a seed of the study; tuning needs seeds that no "
                    f"verdict uses",
                )
    if section is None:
        return None
    grids = {}
    for key in ("grid", "decoding"):
        grids[key] = _read_grid(node.value[key][1], report) if getattr(section, key) else {}
    if not any(grids.values()) or bool(grids["grid"]) != bool(own) or set(own) & set(seeds):
        return None
    return Tune(grids["grid"], own, section.steps, node.mark, grids["decoding"])


def _read_grid(node: Node, report: Report) -> dict[str, tuple[Node, ...]]:
    """The values of each field; empty after an error."""
    grid: dict[str, tuple[Node, ...]] = {}
    valid = True
    for key, mark, values in node.items():
        name = standard_name(key) or key
        again = _repeated(values)
        if name in grid:
            report(mark, f'"{key}" is given twice')
        elif again is not None:
            report(again.mark, f'"{key}" has the value {again.kind} twice')
        else:
            grid[name] = tuple(values.value)
            continue
        valid = False
    count = math.prod(len(values) for values in grid.values())
    if count > MAX_CANDIDATES:
        report(
            node.mark,
            f"makes {count:,} candidates for each row; at most {MAX_CANDIDATES:,} are allowed",
        )
        valid = False
    return grid if valid else {}


def _repeated(values: Node) -> Node | None:
    """The first value of a list that an earlier one equals; lists and mappings are refused as
    values of a field.
    """
    seen: list[tuple[type, Any]] = []  # with the type, because True == 1
    for node in values.value:
        key = (bool if isinstance(node.value, bool) else object, node.value)
        if not isinstance(node.value, (dict, list)) and key in seen:
            return node  # type: ignore[no-any-return]
        seen.append(key)
    return None
