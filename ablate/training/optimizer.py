"""Optimizers of torch by name: Adam (section 5.3; Kingma and Ba, 2015), AdamW, SGD and Muon.

Adam, AdamW and SGD are torch's public functions (torch.optim.adam.adam and so on) with its fused
kernels: the same bits as the classes. The classes themselves are not made, because that loads
torch's compiler and sympy: 1.9 s and 73 MB of every worker with torch 2.13, against 0.01 s and 2 MB
(benchmarks/LOG.md, 2026-11-22, optimizers). Muon has no public function, so it is the class, and
pays that price.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from ablate.config import RowConfig
from ablate.kernels.device import to_host
from ablate.model.encoder_only import TokenTypes
from ablate.model.layers import Embedding
from ablate.model.positions import PositionalEncoding

State = dict[str, Tensor]  # of one parameter, by kind: `exp_avg`, `momentum_buffer` ...
Update = Callable[[Mapping[str, nn.Parameter], dict[str, State], float, float], None]


@dataclass(frozen=True)
class Group:
    """Parameters by name that share an update rule, a weight decay, and a function for the initial
    state.
    """

    parameters: dict[str, nn.Parameter]
    update: Update
    weight_decay: float
    # None: made by the update itself, or not needed
    new_state: Callable[[nn.Parameter], State] | None = None


class Optimizer:
    """The optimizer of one model, whose state goes into checkpoints by the names of parameters.

    Weight decay is of matrices alone: gains and biases have few numbers, and a scale of their own.
    With `optimizer=muon`, Muon is for the matrices (two axes) of hidden layers, and AdamW for all
    other parameters: embeddings, the output matrix, positional encodings, gains and biases (Jordan
    et al., 2024).

    Attributes:
        names: of all parameters, in the order of the groups.
        moments: the state of each parameter, from `allocate` or from its first gradient on.
    """

    def __init__(self, model: nn.Module, config: RowConfig) -> None:
        self.clip = config.gradient_clipping
        named = dict(model.named_parameters())
        self.groups = [group for group in _groups(model, named, config) if group.parameters]
        self.names = [name for group in self.groups for name in group.parameters]
        self.parameters = [named[name] for name in self.names]
        self.moments: dict[str, State] = {}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Clip the gradients to their largest norm, take a step at this learning rate, and clear
        them.
        """
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        for group in self.groups:
            with_gradient = {name: p for name, p in group.parameters.items() if p.grad is not None}
            if with_gradient:
                group.update(with_gradient, self.moments, rate, group.weight_decay)
        self.clear()

    def allocate(self) -> None:
        """Make the state of all parameters now, and not in the first step, where memory may already
        be full.
        """
        for group in self.groups:
            for name, parameter in group.parameters.items():
                if group.new_state is not None and name not in self.moments:
                    self.moments[name] = group.new_state(parameter)

    def clear(self) -> None:
        """Drop all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """The state of all parameters as `kind/name`, on the CPU."""
        return to_host(
            {
                f"{kind}/{name}": value
                for name, state in self.moments.items()
                for kind, value in state.items()
            }
        )

    def load(self, state: dict[str, Tensor]) -> None:
        """Replace the state by one from `state()`."""
        devices = {
            name: parameter.device
            for name, parameter in zip(self.names, self.parameters, strict=True)
        }
        self.moments = {}
        for key, value in state.items():
            # At the first slash: kinds have none.
            kind, _, name = key.partition("/")
            self.moments.setdefault(name, {})[kind] = value.to(devices[name])


def _groups(model: nn.Module, named: Mapping[str, nn.Parameter], config: RowConfig) -> list[Group]:
    """Groups of a model's parameters: matrices first, with weight decay if the row has any."""
    if config.optimizer == "muon":
        hidden = hidden_matrices(model)
        muon = {name: p for name, p in named.items() if name in hidden}
        rest = {name: p for name, p in named.items() if name not in hidden}
        others = _by_decay(rest, _adam(config, decoupled=True), config.weight_decay, _adam_state)
        return [Group(muon, _Muon(muon, config), config.weight_decay), *others]
    if config.optimizer == "sgd":
        return _by_decay(
            named,
            _sgd(config),
            config.weight_decay,
            _momentum_state if config.momentum_used else None,
        )
    return _by_decay(
        named,
        _adam(config, decoupled=config.optimizer == "adamw"),
        config.weight_decay,
        _adam_state,
    )


def _by_decay(
    named: Mapping[str, nn.Parameter],
    update: Update,
    weight_decay: float,
    new_state: Callable[[nn.Parameter], State] | None,
) -> list[Group]:
    # Without weight decay all parameters are in one group, so that the fused kernel is called once.
    decayed = {name for name, parameter in named.items() if weight_decay and parameter.dim() > 1}
    return [
        Group(
            {name: p for name, p in named.items() if name in decayed},
            update,
            weight_decay,
            new_state,
        ),
        Group(
            {name: p for name, p in named.items() if name not in decayed}, update, 0.0, new_state
        ),
    ]


def hidden_matrices(model: nn.Module) -> set[str]:
    """Names of the parameters with two axes that are neither embeddings nor positional
    encodings.
    """
    outer = [
        module
        for module in model.modules()
        if isinstance(module, (Embedding, PositionalEncoding, TokenTypes))
    ]
    # By identity and not by name: a tied embedding is one parameter in several modules.
    excluded = {id(parameter) for module in outer for parameter in module.parameters()}
    return {name for name, p in model.named_parameters() if p.dim() == 2 and id(p) not in excluded}


def _adam(config: RowConfig, decoupled: bool) -> Update:
    function = adamw if decoupled else adam

    def update(
        parameters: Mapping[str, nn.Parameter],
        moments: dict[str, State],
        rate: float,
        weight_decay: float,
    ) -> None:
        states = [_state(moments, name, p, _adam_state) for name, p in parameters.items()]
        function(
            list(parameters.values()),
            [p.grad for p in parameters.values() if p.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],  # maxima, for amsgrad
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=config.adam_beta1,
            beta2=config.adam_beta2,
            lr=rate,
            weight_decay=weight_decay,
            eps=config.adam_eps,
            maximize=False,
        )

    return update


def _adam_state(parameter: nn.Parameter) -> State:
    return {
        # A tensor, as the fused kernel requires, and on the device of the parameter.
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def _state(
    moments: dict[str, State],
    name: str,
    parameter: nn.Parameter,
    new_state: Callable[[nn.Parameter], State],
) -> State:
    """The state of a parameter, made at its first gradient."""
    if name not in moments:
        moments[name] = new_state(parameter)
    return moments[name]


def _momentum_state(parameter: nn.Parameter) -> State:
    return {"momentum_buffer": torch.zeros_like(parameter)}


def _sgd(config: RowConfig) -> Update:
    momentum = config.momentum_used

    def update(
        parameters: Mapping[str, nn.Parameter],
        moments: dict[str, State],
        rate: float,
        weight_decay: float,
    ) -> None:
        buffers: list[Tensor | None] = [None] * len(parameters)
        if momentum:  # a buffer of zeros gives the first step that torch gives without one
            states = [_state(moments, name, p, _momentum_state) for name, p in parameters.items()]
            buffers = [state["momentum_buffer"] for state in states]
        sgd(
            list(parameters.values()),
            [p.grad for p in parameters.values() if p.grad is not None],
            buffers,
            fused=True,
            weight_decay=weight_decay,
            momentum=momentum,
            lr=rate,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )

    return update


class _Muon:
    """torch.optim.Muon with updates of the size of AdamW's, so that one rate serves both (Liu et
    al., 2025).
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], config: RowConfig) -> None:
        self.optimizer = torch.optim.Muon(
            parameters.values(),
            weight_decay=config.weight_decay,
            momentum=config.momentum_used,
            adjust_lr_fn="match_rms_adamw",
        )

    def __call__(
        self,
        parameters: Mapping[str, nn.Parameter],
        moments: dict[str, State],
        rate: float,
        weight_decay: float,
    ) -> None:
        for (
            name,
            parameter,
        ) in parameters.items():  # the state is ours, so that it is saved and loaded by name
            self.optimizer.state[parameter] = moments.setdefault(name, {})
        # The schedule sets the rate of every step.
        self.optimizer.param_groups[0].update(lr=rate, weight_decay=weight_decay)
        self.optimizer.step()
