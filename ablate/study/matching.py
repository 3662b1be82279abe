"""Match the cost of a row to base: choose a field's value with equal parameters or FLOPs.

Source: rows at equal cost, as in "Do Transformer Modifications Transfer Across Implementations and
Applications?" (Narang et al., 2021), where parameters and FLOPs of all variants are kept near the
baseline's.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from ablate.config import RowConfig
from ablate.config.cost import idle_parameters, parameters, training_flops
from ablate.config.lengths import ASSUMED_LENGTH, Lengths
from ablate.config.model import ModelConfig
from ablate.config.resolve import SYMBOLS, resolve_row, standard_name
from ablate.config.steps import Resolve
from ablate.config.training import MAX_STEPS
from ablate.errors import Fault, Invalid, listed, unknown_name
from ablate.formatting import scaled
from ablate.parts.sizes import MAX_SIZE
from ablate.parts.variant import classes_of
from ablate.study.settings import required_alone
from ablate.study.typed import Misplaced, Placed

Cost = Literal["params", "active_params", "flops"]
# Free fields of each cost, with the range that is searched.
RANGES: dict[str, tuple[int, int]] = {
    "d_ff": (1, MAX_SIZE),
    "d_model": (2, MAX_SIZE),
    "n_layers": (1, 256),
    "train_steps": (1, MAX_STEPS),
}
FREE_FIELDS: dict[str, tuple[str, ...]] = {
    "params": ("d_ff", "d_model", "n_layers"),
    "active_params": ("d_ff", "d_model", "n_layers"),
    "flops": ("d_ff", "d_model", "n_layers", "train_steps"),
}
_NEARBY = 8  # candidates tried on either side of a value that is not valid


def _free(cost: Cost) -> Any:
    """The type of a free field of a cost, by name or by symbol."""
    allowed = FREE_FIELDS[cost]

    def check(value: Any) -> Any:
        if isinstance(value, (dict, list)):
            raise Invalid(f"takes a single free field: {listed(allowed)}")
        field = standard_name(str(value))
        if field in allowed:
            return field
        if field in RANGES:
            what = f'"{value}" does not change {cost}'
            raise Invalid(Fault(what, remedy=f"use {listed(allowed)}"))
        raise Invalid(unknown_name("free field", str(value), allowed))

    names = [*allowed, *(symbol for symbol, name in SYMBOLS.items() if name in allowed)]
    return Annotated[Any, BeforeValidator(check), WithJsonSchema({"enum": names})]


class Match(Placed):
    """The key `match` of a study, a group or a row: one free field, for one cost."""

    model_config = ConfigDict(
        json_schema_extra={
            "description": "each row gets the value of a free field that gives it the cost of base",
            "oneOf": required_alone(FREE_FIELDS),
        }
    )

    params: _free("params") = None  # type: ignore[valid-type]
    active_params: _free("active_params") = None  # type: ignore[valid-type]
    flops: _free("flops") = None  # type: ignore[valid-type]
    within: float = Field(0.01, ge=0, le=0.5)
    """largest relative difference from base; unset: 0.01"""
    # The corpus has no say in the length: ids must not depend on it.
    tokens: int = Field(ASSUMED_LENGTH, ge=1, le=60_000)
    """tokens per sentence that FLOPs are counted with; unset: 30"""

    @model_validator(mode="after")
    def _has_one_cost(self) -> Match:
        costs = self.model_fields_set & FREE_FIELDS.keys()
        if len(costs) != 1:
            needed = f"exactly one of the keys {listed(FREE_FIELDS)}"
            raise Misplaced(f"match needs {needed}; got {len(costs) or 'none'}")
        return self

    @property
    def cost(self) -> Cost:
        """`params` of the model, `active_params` that one token meets, or `flops` of a training."""
        return next(cost for cost in get_args(Cost) if getattr(self, cost))

    @property
    def field(self) -> str:
        """Standard name of the free field."""
        return str(getattr(self, self.cost))

    def of(self, config: RowConfig, vocab_size: int) -> float:
        """Cost of a configuration.

        Raises:
            ValueError: the number of steps is not known, so that FLOPs are not either.
        """
        if self.cost == "params":
            return parameters(config, vocab_size)
        if self.cost == "active_params":
            return parameters(config, vocab_size) - idle_parameters(config)
        flops = training_flops(config, vocab_size, Lengths.of_length(self.tokens))
        if flops is None:
            raise ValueError(
                "FLOPs are known with train_steps only, and not with epochs or patience alone"
            )
        return flops


@dataclass(frozen=True)
class Matched:
    """A field that was chosen so that a row costs what base costs.

    target, reached: cost of base and of the row, in parameters or in FLOPs of one training.
    tokens: tokens per sentence that FLOPs were counted with.
    """

    cost: Cost
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
        return f"{self.field}={self.value}: {self.cost} {signed_percent(self.difference)}"

    @property
    def legend(self) -> str:
        """The line below a table that explains the column of matched fields."""
        names = {
            "params": "parameters",
            "active_params": "active parameters",
            "flops": "training FLOPs",
        }
        line = (
            f"matched: the field that brings the row's {names[self.cost]} within "
            f"{100 * self.within:g} % of base's"
        )
        # The column FLOPs counts the corpus's real lengths, with which the difference may be
        # larger than the tolerance.
        if self.cost == "flops" and self.tokens is not None:
            line += f", counted for sentences of {self.tokens} tokens"
        return f"{line}."

    def amount(self, cost: float) -> str:
        """A cost with its unit: `12,345 parameters`, `9.53 TFLOP`."""
        if self.cost != "flops":
            active = "active " if self.cost == "active_params" else ""
            return f"{cost:,} {active}parameters"
        return scaled(cost, "FLOP")

    def as_json(self) -> dict[str, Any]:
        """The match for scripts."""
        content = asdict(self)
        content["base"], content["row"] = content.pop("target"), content.pop("reached")
        return content


def signed_percent(share: float) -> str:
    """A signed share in percent, with one digit: `+0.1 %`, and `0.0 %` where it would be a zero."""
    text = f"{100 * share:+.1f} %"
    return text.replace("+0.0 %", "0.0 %").replace("-0.0 %", "0.0 %")


class NoMatch(ValueError):  # noqa: N818
    """No value of the free field is valid, or none comes near enough to base's cost."""


def match_row(
    match: Match,
    settings: Mapping[str, Any],
    base: RowConfig,
    vocab_sizes: Callable[[RowConfig], int],
    resolve: Resolve = resolve_row,
) -> Matched:
    """Find the value of the free field that brings the cost of a row nearest to base's.

    Args:
        match: names the cost and the free field.
        settings: of the row, base's included, by standard name; the value of the free field is
            where the search begins.
        base: resolved.
        vocab_sizes: the vocabulary size of a configuration.
        resolve: makes a configuration of settings; raises ValueError where they are not valid.

    Raises:
        NoMatch: with the nearest value, if one is valid.
    """
    inherited = _try(settings, resolve)
    for config in (base, inherited):
        for custom in classes_of(config, ModelConfig) if config else ():
            name = str(custom).partition("@")[0]
            raise NoMatch(f"the cost of {name} is not known, so nothing can be matched to it")
    try:
        target = match.of(base, vocab_sizes(base))
        search = _Search(match, settings, target, vocab_sizes, resolve)
        nearest = search.nearest(inherited)
    except NoMatch:
        raise
    except ValueError as error:
        raise NoMatch(str(error)) from None
    if nearest is None:
        raise NoMatch(f"no value of {match.field} is valid here")
    value, config = nearest
    reached = search.cost(config)
    matched = Matched(match.cost, match.field, value, target, reached, match.within, match.tokens)
    if abs(matched.difference) > match.within:
        raise NoMatch(
            f"no {match.field} gives base's {matched.amount(target)} within "
            f"{100 * match.within:g} %; the nearest, {match.field}={value}, gives "
            f"{matched.amount(reached)} ({signed_percent(matched.difference)})"
        )
    return matched


def _try(settings: Mapping[str, Any], resolve: Resolve) -> RowConfig | None:
    try:
        return resolve(settings)
    except ValueError:  # ValidationError is one
        return None


@dataclass(frozen=True)
class _Search:
    """Bisection over the valid values of a field; the cost does not fall as the field grows."""

    match: Match
    settings: Mapping[str, Any]
    target: float
    vocab_sizes: Callable[[RowConfig], int]
    resolve: Resolve

    @cached_property
    def unit(self) -> int:
        """d_model is a multiple of the h of every layer where a head size follows from it."""
        derived = None in map(self.settings.get, ("d_k", "d_v"))
        if self.match.field != "d_model" or not derived:
            return 1
        config = _try({**self.settings, "d_k": 2, "d_v": 2}, self.resolve)
        if config is None:
            return 1
        return math.lcm(*(layer.n_heads for layer in config.all_layers))

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest value that is searched, in units."""
        low, high = RANGES[self.match.field]
        return -(-low // self.unit), high // self.unit

    def nearest(self, inherited: RowConfig | None) -> tuple[int, RowConfig] | None:
        """The value with the nearest cost, with its configuration; the inherited one if equal."""
        if inherited is not None and self.cost(inherited) == self.target:
            return getattr(inherited, self.match.field), inherited
        # The first multiple of the unit whose cost, or that of the next valid one, is enough.
        low, high = self.ends
        first = low + bisect_left(range(low, high), True, key=self._is_enough)
        candidates = list(filter(None, (self.valid(first - 1, -1), self.valid(first, 1))))
        smallest = self.valid(low, 1)
        if smallest and candidates:
            value, config = candidates[-1]
            if value != smallest[0] and self.cost(config) == self.cost(smallest[1]):
                what = f"{self.match.field} does not change the {self.match.cost} of this row"
                raise NoMatch(what)
        return min(candidates, key=lambda at: abs(self.cost(at[1]) - self.target), default=None)

    def _is_enough(self, index: int) -> bool:
        larger = self.valid(index, 1)
        return larger is None or self.cost(larger[1]) >= self.target

    def cost(self, config: RowConfig) -> float:
        return self.match.of(config, self.vocab_sizes(config))

    def valid(self, index: int, direction: int) -> tuple[int, RowConfig] | None:
        """The nearest valid value from `index` units on, upwards or downwards."""
        low, high = self.ends
        for step in range(index, index + direction * _NEARBY, direction):
            if low <= step <= high:
                value = step * self.unit
                config = _try({**self.settings, self.match.field: value}, self.resolve)
                if config is not None:
                    return value, config
        return None
