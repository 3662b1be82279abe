"""The optimizer of a model: groups of parameters with a rule, a rate and a weight decay each."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ablate.config import RowConfig
from ablate.config.training import DECOUPLED
from ablate.errors import StudyError
from ablate.model.encoder_only import TokenTypes
from ablate.model.layers import ParameterKind, kind_of
from ablate.model.positions import PositionalEncoding
from ablate.model.stack import Layer
from ablate.own.loading import load_class, load_import
from ablate.own.reference import is_own, parse_import, parse_reference, without_digest
from ablate.parts.initialization import factors
from ablate.training.update_rules import (
    RULES,
    RULES_OF_MATRICES,
    AdamW,
    Cautious,
    State,
    UpdateRule,
)

AVERAGE = "average"  # the kind of state that holds what is evaluated
AVERAGED = "averaged"  # and the number of steps in it
OWN_KIND = "own."  # before a kind of a class of one's own that has the name of one of these two
OWN_NUMBERS = "numbers/"  # the state of a class of one's own that is not in tensors, as JSON


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters by name that share a rule, a multiple of the step's rate, and a weight decay."""

    parameters: dict[str, nn.Parameter]
    rule: UpdateRule
    rate: float
    decay: float


class Optimizer:
    """The optimizer of one model, whose state goes into checkpoints by the names of parameters.

    Weight decay is of matrices alone unless the row says otherwise: gains and biases have few
    numbers, and a scale of their own. Muon, NorMuon and SOAP are for the matrices (two axes) of
    hidden layers, and AdamW is then for all other parameters: embeddings, the output matrix,
    positional encodings, gains and biases (Jordan et al., 2024).

    Attributes:
        names: of all parameters, in the order of the groups.
        moments: the state of each parameter, from `allocate` or from its first gradient on.
    """

    def __init__(self, model: nn.Module, config: RowConfig) -> None:
        self.clip = config.gradient_clipping
        self.ema_decay = config.ema_decay
        named = dict(model.named_parameters())
        self.groups = _groups(model, config)
        self.names = [name for group in self.groups for name in group.parameters]
        self.parameters = [named[name] for name in self.names]
        self.moments: dict[str, State] = {}

    @torch.no_grad()
    def step(self, rate: float, decay_share: float = 1.0) -> None:
        """Clip the gradients to their largest norm, take a step at this learning rate, and clear
        them.

        Args:
            rate: learning rate.
            decay_share: of the weight decay that is used in this step.
        """
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self._update(rate, decay_share)
        if self.ema_decay is not None:
            self._average(self.ema_decay)
        self.clear()

    def _update(self, rate: float, decay_share: float) -> None:
        for group in self.groups:
            parameters = []
            states = []
            for name, parameter in group.parameters.items():
                if parameter.grad is not None:
                    parameters.append(parameter)
                    states.append(self._state(group.rule, name, parameter))
            if parameters:
                decay = group.decay * decay_share
                group.rule.step(parameters, states, group.rate * rate, decay)

    def _average(self, decay: float) -> None:
        """Move the averages towards the weights, with Adam's correction of the first steps: the
        first average is the weights, and the averages of d steps are nearly their mean.
        """
        self.allocate()
        share = None  # of the weights, the same for all parameters
        for name, parameter in zip(self.names, self.parameters, strict=True):
            state = self.moments.setdefault(name, {})
            if AVERAGE not in state:
                state[AVERAGE] = torch.zeros_like(parameter)
                state[AVERAGED] = torch.zeros((), device=parameter.device)
            steps = state[AVERAGED].add_(1)
            if share is None:
                share = (1 - decay) / (1 - decay**steps)
            state[AVERAGE].lerp_(parameter, share)

    def allocate(self) -> None:
        """Make the state of all parameters now: memory may be full in the first step."""
        for group in self.groups:
            for name, parameter in group.parameters.items():
                self._state(group.rule, name, parameter)

    def _state(self, rule: UpdateRule, name: str, parameter: nn.Parameter) -> State:
        if name not in self.moments:
            self.moments[name] = rule.new_state(parameter)
        return self.moments[name]

    def clear(self) -> None:
        """Drop all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Exchange the weights and their averages meanwhile, where there are some."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()

    def exchange(self) -> None:
        """Exchange the weights and their averages, without a copy."""
        for name, parameter in zip(self.names, self.parameters, strict=True):
            state = self.moments.get(name, {})
            if AVERAGE in state:
                parameter.data, state[AVERAGE] = state[AVERAGE], parameter.data

    def state(self) -> dict[str, Tensor]:
        """The state of all parameters as `kind/name`."""
        tensors = {}
        for name, state in self.moments.items():
            for kind, value in state.items():
                tensors[f"{kind}/{name}"] = value.detach()
        return tensors

    def load(self, state: dict[str, Tensor]) -> None:
        """Replace the state by one from `state()`."""
        named = dict(zip(self.names, self.parameters, strict=True))
        self.moments = {}
        for key, value in state.items():
            # At the first slash: kinds have none.
            kind, _, name = key.partition("/")
            self.moments.setdefault(name, {})[kind] = value.to(named[name].device)


class OwnOptimizer(Optimizer):
    """A `torch.optim.Optimizer` of a user's own or of an installed package.

    It is called with groups of parameters, which have `lr`, `hidden_matrix` (a list that says for
    each parameter whether muon would update it) and, if the class takes one, `weight_decay`; with
    those of `betas`, `eps` and `momentum` that it takes, from the fields of the row; and with
    the arguments that its import path has.
    """

    def __init__(self, model: nn.Module, config: RowConfig, sources: Path) -> None:
        super().__init__(model, config)
        plugin = parse_reference(config.optimizer)
        arguments: dict[str, Any] = {}
        if plugin is not None:
            kind = load_class(plugin, sources, torch.optim.Optimizer)
        else:
            imported = parse_import(config.optimizer)
            assert imported is not None
            kind = load_import(imported, torch.optim.Optimizer)
            arguments = dict(imported.arguments)
        taken = inspect.signature(kind).parameters
        fields: dict[str, Any] = {
            "lr": 1e-3,  # until the first step, whose rate is that of the schedule
            "betas": (config.adam_beta1, config.adam_beta2),
            "eps": config.adam_eps,
        }
        if config.momentum is not None:
            fields["momentum"] = config.momentum  # else the class has its own default
        groups: list[dict[str, Any]] = []
        hidden = hidden_matrices(model)
        for group in self.groups:
            groups.append({"params": list(group.parameters.values())})
            groups[-1]["hidden_matrix"] = [name in hidden for name in group.parameters]
            if "weight_decay" in taken:
                groups[-1]["weight_decay"] = group.decay
            elif group.decay:
                optimizer = without_digest(config.optimizer)
                raise StudyError(f"optimizer={optimizer}: it takes no weight_decay, which is set")
        given = {}
        for name, value in fields.items():
            # Adafactor's eps are two numbers of another meaning.
            if name in taken and not (name == "eps" and isinstance(taken[name].default, tuple)):
                given[name] = value
        self.own: torch.optim.Optimizer = kind(groups, **given, **arguments)
        if len(self.own.param_groups) != len(groups):  # each step sets the rate of every group
            raise StudyError(
                f"{kind.__name__}: has {len(self.own.param_groups)} groups of parameters, and was "
                f"given {len(groups)}; keep them as they are, and tell parameters apart in `step`"
            )

    def allocate(self) -> None:
        """Nothing: the class makes its state in the first step."""

    def _update(self, rate: float, decay_share: float) -> None:
        for group, own in zip(self.groups, self.own.param_groups, strict=True):
            own["lr"] = group.rate * rate
            if "weight_decay" in own:
                own["weight_decay"] = group.decay * decay_share
        self.own.step()

    def state(self) -> dict[str, Tensor]:
        """The state of all parameters as `kind/name`, and all numbers as JSON.

        Raises:
            StudyError: the class keeps something else.
        """
        tensors = super().state()  # averages of the weights
        numbers: dict[str, dict[str, Any]] = {}
        for name, parameter in zip(self.names, self.parameters, strict=True):
            for kind, value in self.own.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    prefix = OWN_KIND if kind in (AVERAGE, AVERAGED) else ""
                    # A checkpoint holds no views, such as a transpose or an expanded number.
                    tensors[f"{prefix}{kind}/{name}"] = value.detach().contiguous()
                else:
                    numbers.setdefault(name, {})[kind] = value
        settings = [dict(group, params=None) for group in self.own.param_groups]
        try:
            text = json.dumps([numbers, settings], sort_keys=True)
        except TypeError as error:
            raise StudyError(
                f"{type(self.own).__name__}: its state cannot be saved: {error}; it may keep "
                "tensors for each parameter, and numbers"
            ) from None
        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        return {**tensors, OWN_NUMBERS: content}

    def load(self, state: dict[str, Tensor]) -> None:
        """Replace the state by one from `state()`."""
        numbers, settings = json.loads(state.pop(OWN_NUMBERS).numpy().tobytes())
        super().load(state)
        for name, parameter in zip(self.names, self.parameters, strict=True):
            saved = self.moments.pop(name, {})
            self.moments[name] = {k: saved.pop(k) for k in (AVERAGE, AVERAGED) if k in saved}
            for kind in (AVERAGE, AVERAGED):
                if OWN_KIND + kind in saved:
                    saved[kind] = saved.pop(OWN_KIND + kind)
            if saved or name in numbers:
                self.own.state[parameter] = {**saved, **numbers.get(name, {})}
        for group, saved in zip(self.own.param_groups, settings, strict=True):
            group.update(saved, params=group["params"])


def make_optimizer(model: nn.Module, config: RowConfig, sources: Path) -> Optimizer:
    """The optimizer that a row names; `sources` has those of a user's own classes."""
    if is_own(config.optimizer):
        return OwnOptimizer(model, config, sources)
    return Optimizer(model, config)


def _groups(model: nn.Module, config: RowConfig) -> list[ParameterGroup]:
    """Groups of parameters: of a rule for matrices first, and then those that decay most."""
    kinds = kinds_of_parameters(model)
    hidden = set[str]()
    if config.optimizer in RULES_OF_MATRICES:
        hidden = hidden_matrices(model)
    # By whether a rule for matrices updates them, the multiple of the rate, and the weight decay:
    # one group for all that are alike, so that a fused kernel is called once.
    alike: dict[tuple[bool, float, float], dict[str, nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        rate, decay = _multipliers(config, kinds[name], name in hidden)
        alike.setdefault((name in hidden, rate, decay * config.weight_decay), {})[name] = parameter
    groups = []
    for of_matrix, rate, decay in sorted(alike, key=lambda update: (not update[0], -update[2])):
        parameters = alike[of_matrix, rate, decay]
        groups.append(ParameterGroup(parameters, _rule(config, of_matrix), rate, decay))
    return groups


def _rule(config: RowConfig, of_matrix: bool) -> UpdateRule:
    if is_own(config.optimizer):
        return UpdateRule(config)  # the class has its own
    if of_matrix:
        rule = RULES_OF_MATRICES[config.optimizer](config)
    else:
        rule = RULES.get(config.optimizer, AdamW)(config)
    if config.cautious_updates or config.cautious_decay:
        return Cautious(rule, config)
    return rule


def _multipliers(config: RowConfig, kind: str, of_matrix: bool) -> tuple[float, float]:
    """The multiples of the learning rate and of the weight decay for a kind of parameters."""
    rate, decay = {
        "embedding": (config.embedding_rate, config.embedding_decay),
        "position": (config.embedding_rate, config.embedding_decay),
        "output": (config.output_rate, config.output_decay),
        "vector": (config.vector_rate, config.vector_decay),
        "feed_forward": (config.feed_forward_rate, 1.0),
        "matrix": (1.0, 1.0),
        "kernel": (1.0, 1.0),
    }[kind]
    by_width = factors(config)
    is_orthogonal = of_matrix and config.optimizer != "soap"  # whose updates have Adam's size
    of_matrices = by_width.orthogonal_rate if is_orthogonal else by_width.matrix_rate
    factor = {
        "embedding": by_width.embedding_rate,
        "feed_forward": of_matrices,
        "matrix": of_matrices,
    }.get(kind, 1.0)
    # Decay times rate stays over widths where it shrinks the weights (Dey et al., 2025, table 1).
    return rate * factor, decay / factor if config.optimizer in DECOUPLED else decay


def kinds_of_parameters(model: nn.Module) -> dict[str, str]:
    """The kind of each parameter by name: `embedding`, `position`, `output`, `vector`, `kernel`,
    `feed_forward` or `matrix`.

    Embeddings are those of tokens, also where they are tied to the output; positions have token
    types beside them; vectors are gains and biases.
    """
    # By identity, and not by name: a tied embedding is one parameter in several modules.
    places: dict[int, str] = {}
    declared: dict[int, ParameterKind] = {}
    for module in model.modules():
        if isinstance(module, (PositionalEncoding, TokenTypes)):
            places.update({id(parameter): "position" for parameter in module.parameters()})
        elif isinstance(module, Layer) and module.feed_forward is not None:  # perhaps an own class
            of_network = module.feed_forward.parameters()
            places.update({id(parameter): "feed_forward" for parameter in of_network})
        for name, parameter in module.named_parameters(recurse=False):
            declared[id(parameter)] = kind_of(module, name, parameter)
    output = getattr(model, "output", None)
    if output is not None:
        places[id(output.weight)] = "output"
    kinds = {}
    for name, parameter in model.named_parameters():
        kind = declared[id(parameter)]
        place = places.get(id(parameter), "matrix")
        if kind in ("bias", "gain"):
            kinds[name] = "vector"
        elif kind == "matrix" or place in ("position", "output"):
            kinds[name] = place
        else:
            kinds[name] = kind
    return kinds


def hidden_matrices(model: nn.Module) -> set[str]:
    """Names of matrices with two axes, but for embeddings, positions and the output matrix."""
    kinds = kinds_of_parameters(model)
    names = set()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and kinds[name] in ("matrix", "feed_forward"):
            names.add(name)
    return names
