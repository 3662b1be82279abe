"""Try parts of the model: two short sentences pass through one layer, with the initial parameters
and with random ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ablate.checks.properties import Comparison, Trial, check_classes
from ablate.config import ModelConfig
from ablate.model import Transformer, build
from ablate.model.attention import AttentionMechanism
from ablate.model.encoder_only import EncoderOnly
from ablate.model.multi_head import MultiHeadAttention
from ablate.model.positions import PositionalEncoding
from ablate.own.faults import ClassFault
from ablate.own.kinds import KINDS
from ablate.own.loading import load_class
from ablate.own.reference import Reference, parse_reference
from ablate.parts.variant import class_fields

# Two sentences of different lengths, padded with 0; and each source with the target of the other.
SOURCE = torch.tensor([[4, 5, 6, 7, 10, 8, 3], [8, 9, 3, 0, 0, 0, 0]])
TARGET = torch.tensor([[2, 5, 9, 6, 4, 4, 7], [2, 7, 4, 10, 5, 8, 6]])
OTHER_TARGET = TARGET.flip(0)
VOCAB_SIZE = 11
MAX_POSITIONS = 16  # more than both sides have together
SEEDS = (1, 2, 3)  # of random parameters
# Their input is not read again: not by the residual connection, by the attention itself, or from
# the cache of keys and values.
_MAY_CHANGE = ("activation", "embed", "rotate", "after")
_MODULE = frozenset(vars(nn.Module()))  # attributes of every module


def check_layers(config: ModelConfig, sources: Path) -> None:
    """Check the classes that a model names, in each kind of layer: each class alone, and all.

    Args:
        config: the fields of the model, with pinned references to classes.
        sources: folder with their sources.

    Raises:
        StudyError: a class fails, or lacks a property.
    """
    checked = []
    for layer in config.all_layers:
        alone = layer.single_layer(max_positions=MAX_POSITIONS)
        if alone not in checked:
            _check_layer(alone, sources)
            checked.append(alone)


def _check_layer(config: ModelConfig, sources: Path) -> None:
    if config.score_cap is not None:
        # The gradient of sinks shows whether scores come to where the cap is.
        config = config.model_copy(update={"attention_sinks": True})
    classes = {}
    for field in KINDS.keys() & class_fields(ModelConfig):
        reference = parse_reference(getattr(config, field))
        if reference is not None:
            classes[field] = reference
    choices = [{field: classes[field]} for field in sorted(classes)]
    if len(classes) > 1:
        choices.append(dict(sorted(classes.items())))
    for chosen in choices:
        others = classes.keys() - chosen
        defaults = {field: ModelConfig.model_fields[field].default for field in others}
        layer = config.model_copy(update=defaults)
        check_classes(chosen, sources, partial(_trial, layer, chosen, sources))


def _trial(config: ModelConfig, classes: Mapping[str, Reference], sources: Path) -> LayerTrial:
    model = build(config, VOCAB_SIZE, seed=1, sources=sources)
    twin = build(config, VOCAB_SIZE, seed=1, sources=sources)
    parts = {field: load_class(classes[field], sources, nn.Module) for field in classes}
    return LayerTrial(model, twin, parts)


class LayerTrial(Trial):
    """A model of one layer.

    model, twin: two models of one configuration and seed.
    parts: the class of each part that is tried, by the field that names it.
    """

    def __init__(
        self, model: Transformer, twin: Transformer, parts: Mapping[str, type[nn.Module]]
    ) -> None:
        self.model, self.twin, self.parts = model, twin, parts

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """The modules that are tried, each with its field."""
        for field, cls in self.parts.items():
            for module in self.model.modules():
                if type(module) is cls:
                    yield field, module

    # Shapes

    def results(self) -> None:
        """Refuse results of a wrong shape, and a parameter without gradient."""
        for field, part in self.modules():
            _check_results(part, field)
        states = self._states()
        if not bool(states.isfinite().all()):
            raise ClassFault("gives states that are not finite")
        states.square().mean().backward()
        known = set(map(id, self.model.parameters()))
        for _, part in self.modules():
            _check_gradients(part, known)
        for attention in self.model.modules():
            if isinstance(attention, MultiHeadAttention):
                _check_attention(attention)

    # The four comparisons

    def futures(self) -> Iterator[Comparison]:
        """States at the begin mark, which both targets share: only what comes later differs."""
        if isinstance(self.model, EncoderOnly):  # in which a token may depend on all others
            return
        for states, when in ((self._states, ""), (self._states_in_training, " while training")):
            fault = f"lets a token depend on later ones{when}; {self._hint()}"
            yield Comparison(states(OTHER_TARGET)[:, :1], states(TARGET)[:, :1], fault)

    def paddings(self) -> Iterator[Comparison]:
        """States of the shorter sentence, without its padding."""
        alone = SOURCE[1:, :3]
        fault = f"lets padding change a sentence; {self._hint()}"
        states = self._states()[1:]
        if isinstance(self.model, EncoderOnly):
            yield Comparison(self.model.read(alone), states[:, :3], fault)
        else:
            yield Comparison(self.model(alone, TARGET[1:]), states, fault)

    def steps(self) -> Iterator[Comparison]:
        """States of two hypotheses that are decoded a token at a time."""
        if isinstance(self.model, EncoderOnly):
            return
        states = torch.stack([self._states(), self._states(OTHER_TARGET)], dim=1)
        cache = self.model.start(SOURCE, 2)
        hypotheses = torch.stack([TARGET, OTHER_TARGET], dim=1)  # (B, 2, T)
        steps = [self.model.step(tokens, cache) for tokens in hypotheses.unbind(2)]
        hint = self._hint(decoding=True)
        for _, part in self.modules():
            if isinstance(part, AttentionMechanism) and part.supports_query_masks:
                hint += (
                    "; with `supports_query_masks`, all that `context.mask()` leaves out must be "
                    "left out"
                )
                break
        fault = f"incremental decoding disagrees with the full forward pass; {hint}"
        yield Comparison(torch.stack(steps, dim=2), states, fault)

    def repetitions(self) -> Iterator[Comparison]:
        """Initial weights of two models, and states of two calls."""
        yield Comparison(
            _weights(self.twin),
            _weights(self.model),
            "has other initial weights when it is made again with the same seed",
        )
        yield Comparison(
            self._states(),
            self._states(),
            "gives other states when called again: nothing may be random when evaluating",
        )
        fault = "draws from torch's own generator while training, so no run could be resumed"
        if "attention" in self.parts:
            fault += "; see `context.weights`"
        other_seed = self._states_in_training(TARGET, seed=2)
        yield Comparison(other_seed, self._states_in_training(TARGET), fault)

    def parameters(self) -> Iterator[None]:
        """The initial parameters, and three times random ones that give finite states."""
        yield
        for seed in SEEDS:
            before = {name: value.clone() for name, value in self.model.state_dict().items()}
            _randomize(self.model, seed)
            if bool(self._states().isfinite().all()):
                yield
            else:  # such as a parameter that must be positive: try others
                self.model.load_state_dict(before)

    def _hint(self, decoding: bool = False) -> str:
        """What the author of a part has at hand."""
        for field, kind in KINDS.items():
            hint = (decoding and kind.step_hint) or kind.hint
            if field in self.parts and hint:
                return hint
        return "each token must be treated alone"

    def _states(self, target: Tensor = TARGET) -> Tensor:
        """(B, T, d_model) when evaluating, of which the encoder alone has states of padding too."""
        return self._forward(self.model.eval(), target)

    def _states_in_training(self, target: Tensor, seed: int = 1) -> Tensor:
        """The same in training, with equal dropout masks and a seed of torch's own generator."""
        self.model.train().random.manual_seed(1)
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            states = self._forward(self.model, target)
        self.model.eval()
        return states

    def _forward(self, model: Transformer, target: Tensor) -> Tensor:
        if isinstance(model, EncoderOnly):
            return model.read(SOURCE)
        states: Tensor = model(SOURCE, target)
        return states


def _weights(model: Transformer) -> Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def _randomize(model: Transformer, seed: int) -> None:
    """Add noise to every parameter, as large as its values; where all are equal, initial ones."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        spread = float(parameter.std(correction=0))
        if spread == 0.0:
            spread = 0.5
            if parameter.dim() > 1:
                spread = parameter.shape[-1] ** -0.5
        parameter.add_(spread * torch.randn(parameter.shape, generator=generator))


# Results of a part


# The shape of a result, from the arguments, where it is not that of the first one.
_SHAPES: dict[str, Callable[..., tuple[int, ...]]] = {
    "attention": lambda Q, K, V, context: (*Q.shape[:3], V.shape[-1]),
    "bias": lambda layer, Q, queries, keys: (*Q.shape[:3], keys.shape[-1]),
}


def _check_results(part: nn.Module, field: str) -> None:
    """Let the methods of a part check each of their results from now on."""
    methods = KINDS[field].methods
    if isinstance(part, PositionalEncoding):
        base = PositionalEncoding
        if all(getattr(type(part), method) is getattr(base, method) for method in methods):
            raise ClassFault(f"defines none of {', '.join(methods)}, so it has no effect")
    for method in methods:
        kind = method if len(methods) > 1 else field
        setattr(part, method, _checked(getattr(part, method), method, kind))


def _checked(function: Callable[..., Any], method: str, kind: str) -> Callable[..., Any]:
    """The function, whose result must be a tensor of the expected shape, with a state in a mixer,
    and whose input must stay where others read it.

    Args:
        function: a method of a part.
        method: its name.
        kind: the same, or, for `forward`, the field of the part.
    """

    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        inputs = [value for value in (*args, *keywords.values()) if isinstance(value, Tensor)]
        before = [value.clone() for value in inputs]
        result = function(*args, **keywords)
        if kind not in _MAY_CHANGE and not all(map(_is_same, inputs, before)):
            raise ClassFault(
                f"{method} changes its input in place, which other parts of the model read; "
                "make a new tensor",
                method,
            )
        if kind in ("bias", "values") and result is None:
            return None
        tensor = _mixed_tokens(result) if kind == "mixer" else result
        if not isinstance(tensor, Tensor):
            hint = "; is a return missing?" if tensor is None else ""
            raise ClassFault(
                f"{method} returns {type(tensor).__name__}, not a tensor{hint}", method
            )
        if kind != "values":  # whose arguments do not say the size of its vectors
            shape, expected = tuple(tensor.shape), tuple(inputs[0].shape)
            if kind in _SHAPES:
                expected = _SHAPES[kind](*args, **keywords)
            if shape != expected and not (kind == "bias" and _is_broadcast(shape, expected)):
                raise ClassFault(f"{method} returns shape {shape}; expected {expected}", method)
        return result

    return checked


def _mixed_tokens(result: Any) -> Any:
    """The first part of what a mixer returns, which the state follows."""
    if not isinstance(result, tuple) or len(result) != 2:
        returned = type(result).__name__
        fault = f"forward returns {returned}, not (B, T, d_model) and a state"
        raise ClassFault(fault, "forward")
    mixed, state = result
    if not hasattr(state, "select"):
        raise ClassFault(
            f"forward returns the state {type(state).__name__}, which has no method "
            "select(rows) for the rows of a batch",
            "forward",
        )
    return mixed


def _is_same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors are equal, also NaN, which random parameters may give."""
    return torch.equal(x.nan_to_num(), y.nan_to_num())


def _is_broadcast(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return tuple(torch.broadcast_shapes(shape, to)) == to
    except RuntimeError:
        return False


# Gradients


def _check_gradients(part: nn.Module, known: set[int]) -> None:
    """Refuse a parameter that would never learn; `known` are the ids of those of the model."""
    for module in part.modules():
        for name, value in vars(module).items():
            if name not in _MODULE and any(id(tensor) not in known for tensor in _hidden(value)):
                raise ClassFault(
                    f"its attribute {name} has parameters that torch does not know, so they "
                    "would never learn; use nn.Parameter, nn.ParameterList or nn.ModuleList"
                )
    for name, parameter in part.named_parameters():
        if parameter.grad is None:
            raise ClassFault(f"its parameter {name} has no gradient, so it would never learn")


def _hidden(value: object) -> list[Tensor]:
    """What is to learn in an attribute that is no parameter and no module."""
    if isinstance(value, dict):
        value = list(value.values())
    tensors = []
    for item in value if isinstance(value, (list, tuple)) else (value,):
        tensors += list(item.parameters()) if isinstance(item, nn.Module) else [item]
    # An activation that a class keeps is computed from others, and no leaf.
    tensors = [item for item in tensors if isinstance(item, Tensor)]
    return [item for item in tensors if item.requires_grad and item.is_leaf]


def _check_attention(attention: MultiHeadAttention) -> None:
    """Refuse heads that nothing before them would learn from, or that pass by the sinks."""
    if attention.value_projection.weight.grad is None:
        raise ClassFault(
            "its output has no gradient with respect to V, so nothing before it would learn",
            "forward",
        )
    if attention.sinks is not None and attention.sinks.grad is None:
        raise ClassFault(
            "its scores do not pass `context.weights`, which applies score_cap and "
            "attention_sinks; a class without scores, or with its own cap, says "
            "forms_scores = False",
            "forward",
        )
