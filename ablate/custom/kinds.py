"""The kinds of classes and functions that a study may name.

`ablate/checks/` checks them before a run is trained; its tests also check all built-in parts.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

_MASKS = "`context.mask()` has the allowed keys"


@dataclass(frozen=True)
class Kind:
    """A kind of class or function.

    name: name of the kind in messages.
    base: name of the base class; `function` for a function.
    arguments: description in messages of the arguments of the constructor or the function.
    count: number of positional arguments.
    keywords: names of keyword arguments.
    methods: methods that a class of this kind may define.
    hint: hint for the author of a class in which a token depends on tokens that it should not see;
        if empty, the message says that each token must be treated alone.
    step_hint: hint for faults in incremental decoding, if it differs from `hint`.
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
        except ValueError:  # a part without a signature, such as a builtin
            return True
        return True


# The kinds by the field that names a class; `task` is a key of the study, not a field of a row. If
# several classes of a model may be at fault, the message has the hint of the first kind here.
KINDS = {
    "mixer": Kind(
        "a mixer", "TokenMixer", "config", 1, (),
        hint="return for each row the state after its last token that is not padding",
    ),
    "attention": Kind(
        "attention", "AttentionMechanism", "config", 1, (), hint=_MASKS,
        step_hint=f"Q may have only the last tokens: {_MASKS}, and positions are "
        "`context.query_positions` and `context.key_positions`",
    ),
    "positional_encoding": Kind(
        "a positional encoding", "PositionalEncoding", "config, causal and init", 1,
        ("causal", "init"), ("embed", "rotate", "bias", "values"),
        step_hint="take positions from the arguments `positions`, `queries` and `keys`",
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


def arguments_of(part: Any, accept_any: bool = True) -> str:
    """Describe the arguments that a class or a function must accept; empty if it accepts them, or
    is of no kind.

    `accept_any` says whether it is enough that it accepts the arguments of one of its kinds.
    """
    for cls in getattr(part, "__mro__", (type(part),)):
        kinds = [kind for kind in KINDS.values() if kind.base == cls.__name__]
        if not kinds:
            continue
        others = [kind for kind in kinds if not kind.fits(part)]
        if not others or (accept_any and len(others) < len(kinds)):
            return ""
        if len(kinds) == 1:
            return kinds[0].arguments
        return ", ".join(f"{kind.arguments} as {kind.name}" for kind in others)
    return ""
