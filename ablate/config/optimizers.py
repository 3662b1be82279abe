"""The built-in optimizers: facts about each, without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ablate.custom.reference import parse_import
from ablate.errors import Fault
from ablate.parts.variant import Variant, Variants

ADAM_FIELDS = ("adam_beta1", "adam_beta2", "adam_eps")
# Arguments of an optimizer class that follow from fields, and the names of these fields.
ARGUMENTS_OF_FIELDS = {
    "params": "the model",
    "lr": "learning_rate",
    "betas": "adam_beta1 and adam_beta2",
    "eps": "adam_eps",
    "momentum": "momentum",
    "weight_decay": "weight_decay",
}


@dataclass(frozen=True)
class OptimizerVariant(Variant):
    """Facts about an optimizer, whose update rule is constructed with the configuration of a row.

    fields: names of the fields of training that it reads, besides learning rate and weight decay.
    values: number of values in its state for each parameter that it updates, as a function of the
        configuration.
    momentum: default of the field `momentum`; None if it does not read the field.
    is_decoupled: whether weight decay shrinks the weights directly, and is not part of the
        gradient.
    only_matrices: whether it updates only the matrices of hidden layers, and AdamW all other
        parameters.
    is_orthogonal: whether its updates are orthogonal matrices.
    may_grow: whether its updates may grow with the gradient.
    can_be_cautious: whether its updates can be changed by `cautious_updates` and `cautious_decay`.
    """

    fields: tuple[str, ...] = ADAM_FIELDS
    values: Callable[[Any], int] = lambda c: 2
    momentum: float | None = None
    is_decoupled: bool = False
    only_matrices: bool = False
    is_orthogonal: bool = False
    may_grow: bool = False
    can_be_cautious: bool = True


OPTIMIZERS = Variants(
    custom=OptimizerVariant(may_grow=True, can_be_cautious=False),
    adam=OptimizerVariant("ablate.training.update_rules:Adam"),
    adamw=OptimizerVariant("ablate.training.update_rules:AdamW", is_decoupled=True),
    sgd=OptimizerVariant(
        "ablate.training.update_rules:SGD",
        fields=("momentum",),
        values=lambda c: int(c.momentum_used > 0),
        momentum=0.9,
        may_grow=True,
    ),
    muon=OptimizerVariant(
        "ablate.training.update_rules:Muon",
        fields=("momentum", *ADAM_FIELDS),
        values=lambda c: 1,
        momentum=0.95,
        is_decoupled=True,
        only_matrices=True,
        is_orthogonal=True,
    ),
    normuon=OptimizerVariant(
        "ablate.training.update_rules:NorMuon",
        fields=("momentum", *ADAM_FIELDS),
        values=lambda c: 1,  # and a value for each row of a matrix, which is left out
        momentum=0.95,
        is_decoupled=True,
        only_matrices=True,
        is_orthogonal=True,
    ),
    soap=OptimizerVariant(
        "ablate.training.update_rules:SOAP",
        fields=("preconditioning_frequency", *ADAM_FIELDS),
        # 2 moments, and 2 (m^2 + n^2) values for an (m, n) matrix, which are 4 m n or more.
        values=lambda c: 6,
        is_decoupled=True,
        only_matrices=True,
    ),
    lion=OptimizerVariant(
        "ablate.training.update_rules:Lion",
        fields=("adam_beta1", "adam_beta2"),
        values=lambda c: 1,
        is_decoupled=True,
    ),
    schedule_free=OptimizerVariant(
        "ablate.training.update_rules:ScheduleFree", values=lambda c: 3, is_decoupled=True
    ),
)


def users_of(field: str) -> list[str]:
    """Names of the built-in optimizers that read a field."""
    return [name for name, optimizer in OPTIMIZERS.items() if field in optimizer.fields]


def arguments_in(optimizer: str) -> dict[str, Any]:
    """The arguments in the import path of an installed class; empty for any other optimizer."""
    imported = parse_import(optimizer)
    return dict(imported.arguments) if imported else {}


def argument_faults(optimizer: str) -> Iterator[Fault]:
    """Yield a fault for each argument of an installed class that a field sets."""
    for name in arguments_in(optimizer):
        if name in ARGUMENTS_OF_FIELDS:
            yield Fault(
                f"optimizer={optimizer}: {name} is set by {ARGUMENTS_OF_FIELDS[name]}",
                ("optimizer",),
                remedy="remove it here",
            )
