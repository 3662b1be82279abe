"""Match the cost of a row to the cost of base: find the value of one field, the free field, with
which the row has as many parameters or FLOPs as base.

Source: "Do Transformer Modifications Transfer Across Implementations and Applications?" (Narang et
al., 2021), where all variants have about as many parameters and FLOPs as the baseline.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from ablate.config import RowConfig
from ablate.config.cost import (
    idle_parameters,
    parameters,
    training_flops,
    uncounted_classes,
)
from ablate.config.lengths import ASSUMED_LENGTH, Lengths
from ablate.config.resolve import SYMBOLS, resolve_row, standard_name
from ablate.config.steps import Resolve
from ablate.config.training import MAX_STEPS
from ablate.errors import Fault, Invalid, listed, unknown_name
from ablate.formatting import flops_text, signed_percent
from ablate.parts.sizes import MAX_SIZE
from ablate.study.settings import one_required
from ablate.study.typed import Misplaced, Placed

CostKind = Literal["params", "active_params", "flops"]
# The fields that may be chosen to match each kind of cost.
FREE_FIELDS: dict[str, tuple[str, ...]] = {
    "params": ("d_ff", "d_model", "n_layers"),
    "active_params": ("d_ff", "d_model", "n_layers"),
    "flops": ("d_ff", "d_model", "n_layers", "train_steps"),
}
# The smallest and the largest value that is tried, by free field.
RANGES: dict[str, tuple[int, int]] = {
    "d_ff": (1, MAX_SIZE),
    "d_model": (2, MAX_SIZE),
    "n_layers": (1, 256),
    "train_steps": (1, MAX_STEPS),
}
_NEARBY = 8  # number of values tried to find a valid one


def _free_field(kind: CostKind) -> WithJsonSchema:
    """The schema of a free field, by its name or its symbol."""
    allowed = FREE_FIELDS[kind]
    symbols = [symbol for symbol, name in SYMBOLS.items() if name in allowed]
    return WithJsonSchema({"enum": [*allowed, *symbols]})


class Match(Placed):
    """The key `match` of a study or of a group: one kind of cost, and its free field."""

    model_config = ConfigDict(
        json_schema_extra={
            "description": "each row gets the value of the free field at which it costs as much as "
            "base",
            "oneOf": one_required(FREE_FIELDS),
        }
    )

    params: Annotated[str, _free_field("params")] = ""
    active_params: Annotated[str, _free_field("active_params")] = ""
    flops: Annotated[str, _free_field("flops")] = ""
    within: float = Field(0.01, ge=0, le=0.5)
    """largest relative difference from base; unset: 0.01"""
    # Not the length of the corpus: the matched value, and so the run id, must not depend on the
    # text.
    tokens: int = Field(ASSUMED_LENGTH, ge=1, le=60_000)
    """tokens per sentence for which FLOPs are counted; unset: 30"""

    @field_validator(*FREE_FIELDS, mode="before")
    @classmethod
    def _check_free_field(cls, value: Any, key: ValidationInfo) -> str:
        """The standard name of the free field of a kind of cost."""
        assert key.field_name is not None
        allowed = FREE_FIELDS[key.field_name]
        if isinstance(value, (dict, list)):
            raise Invalid(f"takes a single free field: {listed(allowed)}")
        field = standard_name(str(value))
        if field in allowed:
            return field
        if field in RANGES:
            problem = f'"{value}" does not change {key.field_name}'
            raise Invalid(Fault(problem, remedy=f"use {listed(allowed)}"))
        raise Invalid(unknown_name("free field", str(value), allowed))

    @model_validator(mode="after")
    def _has_one_cost(self) -> Match:
        costs = [cost for cost in FREE_FIELDS if cost in self.model_fields_set]
        if len(costs) != 1:
            needed = f"exactly one of the keys {listed(FREE_FIELDS)}"
            raise Misplaced(f"match needs {needed}; got {', '.join(costs) or 'none'}")
        return self

    @property
    def kind(self) -> CostKind:
        """Kind of cost: `params` of the model, `active_params` that one token uses, or `flops` of a
        training.
        """
        return next(kind for kind in get_args(CostKind) if getattr(self, kind))

    @property
    def field(self) -> str:
        """Standard name of the free field."""
        return str(getattr(self, self.kind))

    def cost_of(self, config: RowConfig, vocab_size: int) -> float:
        """Cost of a configuration, in parameters or in FLOPs of one training.

        Raises:
            ValueError: FLOPs are asked for, and the number of steps is not known.
        """
        if self.kind == "params":
            return parameters(config, vocab_size)
        if self.kind == "active_params":
            return parameters(config, vocab_size) - idle_parameters(config)
        flops = training_flops(config, vocab_size, Lengths.of_length(self.tokens))
        if flops is None:
            raise ValueError(
                "matching FLOPs needs train_steps: with only epochs or patience, the number of "
                "steps is unknown"
            )
        return flops


@dataclass(frozen=True)
class Matched:
    """The free field of a row, with the value at which the row costs as much as base.

    kind: kind of cost.
    field: standard name of the free field.
    value: value of the free field.
    target: cost of base, in parameters or in FLOPs of one training.
    reached: cost of the row, in the same unit.
    within: largest relative difference that is allowed.
    tokens: tokens per sentence for which FLOPs were counted.
    """

    kind: CostKind
    field: str
    value: int
    target: float
    reached: float
    within: float
    tokens: int

    @property
    def difference(self) -> float:
        """Relative difference from base: 0.01 if the row costs 1 % more."""
        return self.reached / self.target - 1

    @property
    def text(self) -> str:
        """`d_ff=342: params +0.1 %`."""
        return f"{self.field}={self.value}: {self.kind} {signed_percent(self.difference)}"

    @property
    def legend(self) -> str:
        """The line below a table that explains the column of matched fields."""
        return f"matched: {self.rule}."

    @property
    def rule(self) -> str:
        """`the field that brings the row's parameters within 1 % of base's`."""
        names = {
            "params": "parameters",
            "active_params": "active parameters",
            "flops": "training FLOPs",
        }
        line = (
            f"the field that brings the row's {names[self.kind]} within "
            f"{100 * self.within:g} % of base's"
        )
        # The table's FLOPs are computed with the real lengths of the corpus, so there the
        # difference may be larger than the tolerance.
        if self.kind == "flops":
            line += f", counted for sentences of {self.tokens} tokens"
        return line

    def amount(self, cost: float) -> str:
        """A cost with its unit: `12,345 parameters`, `9.53 TFLOP`."""
        if self.kind == "flops":
            return flops_text(cost)
        active = "active " if self.kind == "active_params" else ""
        return f"{cost:,} {active}parameters"

    def as_json(self) -> dict[str, Any]:
        """The match as JSON values."""
        content = {"cost": self.kind, "field": self.field, "value": self.value}
        content |= {"within": self.within, "tokens": self.tokens}
        return content | {"base": self.target, "row": self.reached}


class NoMatch(Exception):  # noqa: N818
    """No value of the free field is valid, or no valid value comes near enough to base's cost."""


def match_row(
    match: Match,
    settings: Mapping[str, Any],
    base: RowConfig,
    vocab_size_of: Callable[[RowConfig], int],
    resolve: Resolve = resolve_row,
) -> Matched:
    """Find the value of the free field that brings the cost of a row nearest to the cost of base.
    If the row already costs as much as base, its value is kept.

    Args:
        match: the kind of cost, the free field and the tolerance.
        settings: settings of base and of the row, by standard name.
        base: configuration of base.
        vocab_size_of: returns the vocabulary size of a configuration.
        resolve: makes a configuration from settings; raises ValueError if they are not valid.

    Raises:
        NoMatch: no value is near enough. The message has the nearest value, if one is valid.
    """
    inherited = _resolve_valid(settings, resolve)
    for config in (base, inherited):
        for name in uncounted_classes(config) if config else ():
            raise NoMatch(f"the cost of {name} is not known, so nothing can be matched to it")
    try:
        target = match.cost_of(base, vocab_size_of(base))
        search = _Search(match, settings, target, vocab_size_of, resolve)
        nearest = search.nearest(inherited)
    except ValueError as error:  # the cost cannot be computed
        raise NoMatch(str(error)) from None
    if nearest is None:
        raise NoMatch(f"no value of {match.field} is valid here")
    matched = Matched(
        match.kind, match.field, nearest.value, target, nearest.cost, match.within, match.tokens
    )
    if abs(matched.difference) > match.within:
        raise NoMatch(
            f"no {match.field} gives base's {matched.amount(target)} within "
            f"{100 * match.within:g} %; the nearest, {match.field}={nearest.value}, gives "
            f"{matched.amount(nearest.cost)} ({signed_percent(matched.difference)})"
        )
    return matched


def _resolve_valid(settings: Mapping[str, Any], resolve: Resolve) -> RowConfig | None:
    """The configuration of settings; None if they are not valid."""
    try:
        return resolve(settings)
    except ValueError:  # includes ValidationError
        return None


@dataclass(frozen=True)
class _Candidate:
    """A valid value of the free field, with the cost of the row at this value."""

    value: int
    cost: float


@dataclass(frozen=True)
class _Search:
    """Bisection over the valid values of the free field. The cost does not fall as the value grows.

    The values are the multiples of `stride`: the value at index i is i * stride.
    """

    match: Match
    settings: Mapping[str, Any]
    target: float
    vocab_size_of: Callable[[RowConfig], int]
    resolve: Resolve

    @cached_property
    def stride(self) -> int:
        """Difference between neighboring values: 1, unless d_k or d_v is derived from d_model. Then
        d_model must be divisible by the number of heads of every layer.
        """
        is_derived = self.settings.get("d_k") is None or self.settings.get("d_v") is None
        if self.match.field != "d_model" or not is_derived:
            return 1
        # Any valid head sizes do, because only the numbers of heads are read.
        config = _resolve_valid({**self.settings, "d_k": 2, "d_v": 2}, self.resolve)
        if config is None:
            return 1
        return math.lcm(*(layer.n_heads for layer in config.all_layers))

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest index."""
        low, high = RANGES[self.match.field]
        return math.ceil(low / self.stride), high // self.stride

    def nearest(self, inherited: RowConfig | None) -> _Candidate | None:
        """The candidate whose cost is nearest to the target; None if no value is valid.

        Args:
            inherited: configuration of the row without a match, which is kept if its cost equals
                the target; None if it is not valid.
        """
        if inherited is not None and self._cost(inherited) == self.target:
            return _Candidate(getattr(inherited, self.match.field), self.target)
        low, high = self.ends
        # The smallest index whose next valid value costs at least the target. The condition is
        # false up to some index and true from there on, because the cost does not fall.
        first = low + bisect_left(range(low, high), True, key=self._reaches_target)
        below = self._next_valid(first - 1, -1)
        above = self._next_valid(first, 1)
        upper = above or below
        if upper is None:
            return None
        smallest = self._next_valid(low, 1)
        # The cost does not fall, so if it is equal at two values, it is constant between them.
        if smallest and upper.value != smallest.value and upper.cost == smallest.cost:
            raise NoMatch(f"{self.match.field} does not change the {self.match.kind} of this row")
        return min(below or upper, upper, key=lambda found: abs(found.cost - self.target))

    def _reaches_target(self, index: int) -> bool:
        """Whether the next valid value costs at least the target, or there is none."""
        candidate = self._next_valid(index, 1)
        return candidate is None or candidate.cost >= self.target

    def _cost(self, config: RowConfig) -> float:
        return self.match.cost_of(config, self.vocab_size_of(config))

    def _next_valid(self, index: int, direction: Literal[1, -1]) -> _Candidate | None:
        """The first valid value from an index on, upwards (1) or downwards (-1); None if there is
        none nearby.
        """
        low, high = self.ends
        for i in range(index, index + direction * _NEARBY, direction):
            if low <= i <= high:
                value = i * self.stride
                settings = {**self.settings, self.match.field: value}
                config = _resolve_valid(settings, self.resolve)
                if config is not None:
                    return _Candidate(value, self._cost(config))
        return None
