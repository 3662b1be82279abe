"""The kinds of classes and functions that a study may name, and the properties that each must have.

`ablate/checks/` tries them before a run is trained, and its tests try all built-in parts.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Property(Enum):
    """A property of a part, as a sentence."""

    SHAPES = "results have the type, the shape and the range that are read"
    FUTURE = "the past cannot see the future"
    PADDING = "padding changes nothing"
    STEPS = "steps equal the whole"
    RESUME = "resume is exact"


# What an author has at hand, by the property that is missing.
_STATES = dict.fromkeys(
    Property, "a state is that after the last token that is no padding, for each row"
)
_POSITIONS = {Property.STEPS: "positions are the arguments `positions`, `queries` and `keys`"}
_MASKS = {
    **dict.fromkeys(Property, "`context.mask()` has the allowed keys"),
    Property.STEPS: "Q may have the last tokens alone: `context.mask()` has the allowed keys, and "
    "positions are `context.query_positions` and `context.key_positions`",
}


@dataclass(frozen=True)
class Kind:
    """A kind of class or function.

    name: as messages say it.
    base: name of the class that it derives from; `function` for a function.
    arguments: what it is constructed or called with, as messages say it.
    count, keywords: the number of these arguments, and the names of further ones.
    properties: those that it must have.
    methods: what a class of this kind may define.
    hints: what its author has at hand, by the property that it lacks; where there is none, each
        token must be treated alone.
    """

    name: str
    base: str
    arguments: str
    count: int
    keywords: tuple[str, ...]
    properties: tuple[Property, ...]
    methods: tuple[str, ...] = ("forward",)
    hints: Mapping[Property, str] = field(default_factory=dict)

    def fits(self, part: Any) -> bool:
        """Whether a class or a function can be called with these arguments."""
        try:
            inspect.signature(part).bind(*range(self.count), **dict.fromkeys(self.keywords))
        except TypeError:
            return False
        except ValueError:  # it has no signature
            return True
        return True


_LAYER, _TRAINING = tuple(Property), (Property.SHAPES, Property.RESUME)

# By the field that names one; `task` stands beside the fields of a row. Of several classes at fault
# in a model, the hint is that of the first.
KINDS = {
    "mixer": Kind("a mixer", "TokenMixer", "config", 1, (), _LAYER, hints=_STATES),
    "attention": Kind("attention", "AttentionMechanism", "config", 1, (), _LAYER, hints=_MASKS),
    "positional_encoding": Kind(
        "a positional encoding", "PositionalEncoding", "config, causal and init", 1,
        ("causal", "init"), _LAYER, ("embed", "rotate", "bias", "values"), _POSITIONS,
    ),
    "norm": Kind("a norm", "Module", "d_model", 1, (), _LAYER),
    "feed_forward": Kind("a feed-forward network", "Module", "config", 1, (), _LAYER),
    "activation": Kind("an activation", "Activation", "no arguments", 0, (), _LAYER),
    "norm_position": Kind(
        "a residual connection", "Residual",
        "norm, residual, rate, random, scale and config; take them as *given", 6, (), _LAYER,
        ("before", "after"),
    ),
    "optimizer": Kind(
        "an optimizer", "Optimizer", "groups of parameters and lr", 1, ("lr",), _TRAINING
    ),
    "schedule": Kind("a schedule", "function", "config, step and last", 3, (), _TRAINING),
    "loss_term": Kind(
        "a loss term", "function", "logits and targets", 2, (), (*_TRAINING, Property.STEPS)
    ),
    "task": Kind("a task", "Task", "no arguments", 0, (), (*_TRAINING, Property.PADDING)),
}  # fmt: skip


def arguments_of(part: Any) -> str:
    """What a class or a function is called with, where it cannot be called so; else empty."""
    for cls in getattr(part, "__mro__", (type(part),)):
        kinds = [kind for kind in KINDS.values() if kind.base == cls.__name__]
        if not kinds:
            continue
        if any(kind.fits(part) for kind in kinds):
            return ""
        if len(kinds) == 1:
            return kinds[0].arguments
        return ", ".join(f"{kind.arguments} as {kind.name}" for kind in kinds)
    return ""
