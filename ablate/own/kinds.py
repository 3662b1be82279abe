"""The kinds of classes and functions that a study may name.

`ablate/checks/` tries them before a run is trained, and its tests try all built-in parts.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

_MASKS = "`context.mask()` has the allowed keys"


@dataclass(frozen=True)
class Kind:
    """A kind of class or function.

    name: as messages say it.
    base: name of the class that it derives from; `function` for a function.
    arguments: what it is constructed or called with, as messages say it.
    count, keywords: the number of these arguments, and the names of further ones.
    methods: what a class of this kind may define.
    hint: what its author has at hand against a token that depends on others; where there is none,
        each token must be treated alone. step_hint: in decoding, if not the same.
    """

    name: str
    base: str
    arguments: str
    count: int
    keywords: tuple[str, ...]
    methods: tuple[str, ...] = ("forward",)
    hint: str = ""
    step_hint: str = ""

    def fits(self, part: Any) -> bool:
        """Whether a class or a function can be called with these arguments."""
        try:
            inspect.signature(part).bind(*range(self.count), **dict.fromkeys(self.keywords))
        except TypeError:
            return False
        except ValueError:  # it has no signature
            return True
        return True


# By the field that names one; `task` stands beside the fields of a row. Of several classes at fault
# in a model, the hint is that of the first.
KINDS = {
    "mixer": Kind(
        "a mixer", "TokenMixer", "config", 1, (),
        hint="a state is that after the last token that is no padding, for each row",
    ),
    "attention": Kind(
        "attention", "AttentionMechanism", "config", 1, (), hint=_MASKS,
        step_hint=f"Q may have the last tokens alone: {_MASKS}, and positions are "
        "`context.query_positions` and `context.key_positions`",
    ),
    "positional_encoding": Kind(
        "a positional encoding", "PositionalEncoding", "config, causal and init", 1,
        ("causal", "init"), ("embed", "rotate", "bias", "values"),
        step_hint="positions are the arguments `positions`, `queries` and `keys`",
    ),
    "norm": Kind("a norm", "Module", "d_model", 1, ()),
    "feed_forward": Kind("a feed-forward network", "Module", "config", 1, ()),
    "activation": Kind("an activation", "Activation", "no arguments", 0, ()),
    "norm_position": Kind(
        "a residual connection", "Residual",
        "norm, residual, rate, random, scale and config; take them as *given", 6, (),
        ("before", "after"),
    ),
    "optimizer": Kind("an optimizer", "Optimizer", "groups of parameters and lr", 1, ("lr",)),
    "schedule": Kind("a schedule", "function", "config, step and last", 3, ()),
    "loss_term": Kind("a loss term", "function", "logits and targets", 2, ()),
    "task": Kind("a task", "Task", "no arguments", 0, ()),
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
