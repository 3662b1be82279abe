"""The optimizer: groups of parameters, each with an update rule, a learning rate and a weight
decay.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ablate.config import RowConfig
from ablate.config.optimizers import OPTIMIZERS, arguments_in
from ablate.custom.loading import load_named_class
from ablate.errors import StudyError
from ablate.model.embeddings import Embedding, TokenTypes
from ablate.model.layers import ParameterKind, parameter_kind
from ablate.model.positions import PositionalEncoding
from ablate.model.stack import Layer
from ablate.parts.initialization import factors
from ablate.training.update_rules import AdamW, Cautious, State, UpdateRule

# Keys of the state of a parameter: the average of its values over the steps, with which the model
# is evaluated; and the number of steps in this average. `schedule_free` has such an average, too.
AVERAGE = "average"
AVERAGED_STEPS = "averaged"
# Prefix for a state key of a user's class that clashes with one of these two keys.
CUSTOM_PREFIX = "own."
# Entry of a checkpoint with all state of a user's class that is not in tensors, as a JSON text. It
# has the form `key/parameter` of the other entries, and belongs to no parameter.
CUSTOM_NUMBERS = "numbers/"


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that are updated with the same settings.

    parameters: the parameters by name.
    rule: update rule.
    rate: learning rate, as a multiple of the scheduled rate.
    decay: weight decay.
    """

    parameters: dict[str, nn.Parameter]
    rule: UpdateRule
    rate: float
    decay: float


class Optimizer:
    """The optimizer of a model. Checkpoints store its state by the names of the parameters.

    Weight decay applies to matrices only, unless the row says otherwise: gains and biases are few
    numbers, and their scale matters. Muon, NorMuon and SOAP update the matrices (two axes) of
    hidden layers. AdamW then updates all other parameters: embeddings, the output matrix,
    positional encodings, gains and biases (Jordan et al., 2024).

    Attributes:
        named_parameters: all parameters by name, in the order of the groups.
        states: state of each parameter by name, such as its moments and its average. It is created
            by `allocate`, or in the first step in which the parameter has a gradient.
    """

    def __init__(self, model: nn.Module, config: RowConfig) -> None:
        self.clip = config.gradient_clipping
        self.ema_decay = config.ema_decay
        self.groups = _groups(model, config)
        self.named_parameters: dict[str, nn.Parameter] = {}
        for group in self.groups:
            self.named_parameters.update(group.parameters)
        self.states: dict[str, State] = {}

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All parameters, in the order of the groups."""
        return list(self.named_parameters.values())

    @torch.no_grad()
    def step(self, rate: float, decay_share: float = 1.0) -> None:
        """Clip the gradients, update the parameters, and clear the gradients.

        Args:
            rate: learning rate.
            decay_share: fraction of the weight decay to apply in this step.
        """
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self._update(rate, decay_share)
        if self.ema_decay is not None:
            self._average(self.ema_decay)
        self.zero_grad()

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
        """Update the exponential moving averages of the weights.

        Their bias is corrected as in Adam: the first average equals the weights, and early averages
        are nearly the mean over the steps so far.
        """
        self.allocate()  # `_state` makes the moments of a parameter only if it has no state at all
        share = None  # weight of the newest values, the same for all parameters
        for name, parameter in self.named_parameters.items():
            state = self.states.setdefault(name, {})  # in `CustomOptimizer`, only for the average
            if AVERAGE not in state:
                state[AVERAGE] = torch.zeros_like(parameter)
                state[AVERAGED_STEPS] = torch.zeros((), device=parameter.device)
            steps = state[AVERAGED_STEPS].add_(1)
            if share is None:
                share = (1 - decay) / (1 - decay**steps)
            state[AVERAGE].lerp_(parameter, share)

    def allocate(self) -> None:
        """Create the state of all parameters now, so that its memory is taken before the first
        step.
        """
        for group in self.groups:
            for name, parameter in group.parameters.items():
                self._state(group.rule, name, parameter)

    def _state(self, rule: UpdateRule, name: str, parameter: nn.Parameter) -> State:
        if name not in self.states:
            self.states[name] = rule.new_state(parameter)
        return self.states[name]

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for parameter in self.named_parameters.values():
            parameter.grad = None

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the averages as weights during the context, if the row averages weights."""
        self.swap_averages()
        try:
            yield
        finally:
            self.swap_averages()

    def swap_averages(self) -> None:
        """Swap the weights with their averages, without a copy."""
        for name, state in self.states.items():
            if AVERAGE in state:
                parameter = self.named_parameters[name]
                parameter.data, state[AVERAGE] = state[AVERAGE], parameter.data

    def state(self) -> dict[str, Tensor]:
        """The state of all parameters, by `key/parameter` such as `exp_avg/output.weight`."""
        tensors = {}
        for name, state in self.states.items():
            for key, value in state.items():
                tensors[f"{key}/{name}"] = value.detach()
        return tensors

    def load(self, state: dict[str, Tensor]) -> None:
        """Replace the state by a result of `state()`."""
        self.states = {}
        for path, value in state.items():
            key, _, name = path.partition("/")  # a key has no slash
            device = self.named_parameters[name].device
            self.states.setdefault(name, {})[key] = value.to(device)


class CustomOptimizer(Optimizer):
    """A `torch.optim.Optimizer` written by the user, or from an installed package.

    The class is called with groups of parameters; with the row's values of `betas`, `eps` and
    `momentum` that it accepts; and with the arguments in its import path. A group has `params`,
    `hidden_matrix` (for each parameter, whether muon would update it) and, if the class accepts it,
    `weight_decay`.

    The class keeps the state of its parameters; `states` has only the averages of the weights.
    """

    def __init__(self, model: nn.Module, config: RowConfig, sources: Path) -> None:
        super().__init__(model, config)
        optimizer_class = load_named_class(config.optimizer, sources, torch.optim.Optimizer)
        accepted = inspect.signature(optimizer_class).parameters
        groups: list[dict[str, Any]] = []
        hidden = hidden_matrices(model)
        for group in self.groups:
            settings: dict[str, Any] = {
                "params": list(group.parameters.values()),
                "hidden_matrix": [name in hidden for name in group.parameters],
            }
            if "weight_decay" in accepted:
                settings["weight_decay"] = group.decay
            elif group.decay:
                raise StudyError(
                    f"optimizer={config.optimizer}: the class has no argument weight_decay, but "
                    "the row sets a weight decay; remove the weight decay, or use another class"
                )
            groups.append(settings)
        arguments = _accepted_arguments(config, accepted) | arguments_in(config.optimizer)
        self.custom: torch.optim.Optimizer = optimizer_class(groups, **arguments)
        if len(self.custom.param_groups) != len(groups):  # each step sets the rate of every group
            raise StudyError(
                f"{optimizer_class.__name__}: has {len(self.custom.param_groups)} groups of "
                f"parameters, and was given {len(groups)}; the constructor must keep the "
                "groups that it is given; distinguish parameters in `step` instead"
            )

    def allocate(self) -> None:
        """Do nothing: the class creates its state in the first step."""

    def _update(self, rate: float, decay_share: float) -> None:
        for group, custom_group in zip(self.groups, self.custom.param_groups, strict=True):
            custom_group["lr"] = group.rate * rate
            if "weight_decay" in custom_group:
                custom_group["weight_decay"] = group.decay * decay_share
        self.custom.step()

    def state(self) -> dict[str, Tensor]:
        """The averages of the weights, the tensors of the class's state, and a tensor with the
        bytes of a JSON text with all other values.

        Raises:
            StudyError: the state has values that are neither tensors nor JSON.
        """
        tensors = super().state()  # the averages
        numbers: dict[str, dict[str, Any]] = {}
        for name, parameter in self.named_parameters.items():
            for key, value in self.custom.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    prefix = CUSTOM_PREFIX if key in (AVERAGE, AVERAGED_STEPS) else ""
                    # A checkpoint cannot hold views, such as a transposed or expanded tensor.
                    tensors[f"{prefix}{key}/{name}"] = value.detach().contiguous()
                else:
                    numbers.setdefault(name, {})[key] = value
        settings = [dict(group, params=None) for group in self.custom.param_groups]
        try:
            text = json.dumps([numbers, settings], sort_keys=True)
        except TypeError as error:
            raise StudyError(
                f"{type(self.custom).__name__}: its state cannot be saved: {error}; allowed are "
                "tensors for each parameter, and values of JSON such as numbers"
            ) from None
        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        return {**tensors, CUSTOM_NUMBERS: content}

    def load(self, state: dict[str, Tensor]) -> None:
        """Replace the state by a result of `state()`."""
        tensors = dict(state)
        numbers, settings = json.loads(tensors.pop(CUSTOM_NUMBERS).numpy().tobytes())
        super().load(tensors)
        for name, parameter in self.named_parameters.items():
            saved = self.states.pop(name, {})
            averages: State = {}
            for key in (AVERAGE, AVERAGED_STEPS):
                if key in saved:
                    averages[key] = saved.pop(key)
                if CUSTOM_PREFIX + key in saved:
                    saved[key] = saved.pop(CUSTOM_PREFIX + key)
            self.states[name] = averages
            if saved or name in numbers:
                self.custom.state[parameter] = {**saved, **numbers.get(name, {})}
        for group, group_settings in zip(self.custom.param_groups, settings, strict=True):
            group.update(group_settings, params=group["params"])


def _accepted_arguments(
    config: RowConfig, accepted: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    """The row's values of the fields that the constructor of a class accepts as arguments."""
    offered: dict[str, Any] = {
        "lr": 1e-3,  # the schedule replaces it in the first step
        "betas": (config.adam_beta1, config.adam_beta2),
        "eps": config.adam_eps,
    }
    if config.momentum is not None:  # otherwise the default of the class
        offered["momentum"] = config.momentum
    if "eps" in accepted and isinstance(accepted["eps"].default, tuple):
        del offered["eps"]  # Adafactor's eps is a pair of numbers with another meaning
    return {name: value for name, value in offered.items() if name in accepted}


class _GroupSettings(NamedTuple):
    """Settings that the parameters of a group share; see `ParameterGroup`."""

    has_matrix_rule: bool
    rate: float
    decay: float


def make_optimizer(model: nn.Module, config: RowConfig, sources: Path) -> Optimizer:
    """Make the optimizer of a row; `sources` is the folder with the sources of user's classes."""
    if config.optimizer in OPTIMIZERS:
        return Optimizer(model, config)
    return CustomOptimizer(model, config, sources)


def _groups(model: nn.Module, config: RowConfig) -> list[ParameterGroup]:
    """Group the parameters by their settings: groups with a matrix rule first, then by descending
    weight decay.

    A fused kernel is called only once for all parameters of a group.
    """
    kinds = parameter_kinds(model)
    hidden = set[str]()
    if OPTIMIZERS[config.optimizer].only_matrices:
        hidden = hidden_matrices(model)
    groups: dict[_GroupSettings, dict[str, nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        rate_factor, decay_factor = _multipliers(config, kinds[name], name in hidden)
        decay = decay_factor * config.weight_decay
        settings = _GroupSettings(name in hidden, rate_factor, decay)
        groups.setdefault(settings, {})[name] = parameter
    result = []
    # Keep this order: the norm for clipping sums over the groups, and a sum depends on its order.
    for settings in sorted(groups, key=lambda key: (not key.has_matrix_rule, -key.decay)):
        rule = _rule(config, settings.has_matrix_rule)
        result.append(ParameterGroup(groups[settings], rule, settings.rate, settings.decay))
    return result


def _rule(config: RowConfig, has_matrix_rule: bool) -> UpdateRule:
    if config.optimizer not in OPTIMIZERS:
        return UpdateRule(config)  # not used: the user's class updates the parameters
    optimizer = OPTIMIZERS[config.optimizer]
    uses_adamw = optimizer.only_matrices and not has_matrix_rule
    rule: UpdateRule = AdamW(config) if uses_adamw else optimizer.make(config)
    if config.cautious_updates or config.cautious_decay:
        return Cautious(rule, config)
    return rule


def _multipliers(config: RowConfig, kind: str, has_matrix_rule: bool) -> tuple[float, float]:
    """Multipliers of the learning rate and of the weight decay, for one kind of parameters."""
    rate_factor, decay_factor = {
        "embedding": (config.embedding_rate, config.embedding_decay),
        "position": (config.embedding_rate, config.embedding_decay),
        "output": (config.output_rate, config.output_decay),
        "vector": (config.vector_rate, config.vector_decay),
        "feed_forward": (config.feed_forward_rate, 1.0),
        "matrix": (1.0, 1.0),
        "kernel": (1.0, 1.0),
    }[kind]
    width_factors = factors(config)
    optimizer = OPTIMIZERS[config.optimizer]
    is_orthogonal = has_matrix_rule and optimizer.is_orthogonal
    matrix_factor = width_factors.orthogonal_rate if is_orthogonal else width_factors.matrix_rate
    width_factor = {
        "embedding": width_factors.embedding_rate,
        "feed_forward": matrix_factor,
        "matrix": matrix_factor,
    }.get(kind, 1.0)
    if optimizer.is_decoupled:
        # The weights shrink by rate times decay in each step. The product must not depend on the
        # width (Dey et al., 2025, table 1).
        decay_factor /= width_factor
    return rate_factor * width_factor, decay_factor


def parameter_kinds(model: nn.Module) -> dict[str, str]:
    """The kind of each parameter by name: `embedding`, `position`, `output`, `vector`, `kernel`,
    `feed_forward` or `matrix`.

    An embedding that is tied to the output is an `embedding`. Token types, and tables of vectors
    without the factor sqrt(d_model), count as `position`; gains and biases as `vector`.
    """
    # By identity, not by name: several modules share a tied embedding.
    module_kinds: dict[int, str] = {}
    declared: dict[int, ParameterKind] = {}
    for module in model.modules():
        is_unscaled = isinstance(module, Embedding) and module.scale == 1.0
        if is_unscaled or isinstance(module, (PositionalEncoding, TokenTypes)):
            for parameter in module.parameters():
                module_kinds[id(parameter)] = "position"
        elif isinstance(module, Layer) and module.feed_forward is not None:
            for parameter in module.feed_forward.parameters():
                module_kinds[id(parameter)] = "feed_forward"
        for name, parameter in module.named_parameters(recurse=False):
            declared[id(parameter)] = parameter_kind(module, name, parameter)
    output = getattr(model, "output", None)
    if output is not None:
        module_kinds[id(output.weight)] = "output"
    kinds = {}
    for name, parameter in model.named_parameters():
        declared_kind = declared[id(parameter)]
        module_kind = module_kinds.get(id(parameter), "matrix")
        if declared_kind in ("bias", "gain"):
            kinds[name] = "vector"
        elif module_kind in ("position", "output") or declared_kind == "matrix":
            kinds[name] = module_kind
        else:  # an embedding, or a kernel of a convolution
            kinds[name] = declared_kind
    return kinds


def hidden_matrices(model: nn.Module) -> set[str]:
    """Names of the matrices with two axes, except embeddings, positions and the output matrix."""
    kinds = parameter_kinds(model)
    names = set()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and kinds[name] in ("matrix", "feed_forward"):
            names.add(name)
    return names
