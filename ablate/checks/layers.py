"""Check the classes that a user wrote as parts of the model, before training: a model of one layer
processes two short sentences, with its initial parameters and with random parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ablate.checks.properties import Comparison, PropertyCheck, check_classes
from ablate.config import ModelConfig
from ablate.custom.faults import ClassFault, FirstFaults
from ablate.custom.kinds import KINDS
from ablate.custom.loading import load_class
from ablate.custom.reference import Reference, parse_reference
from ablate.model import Transformer, build
from ablate.model.attention import AttentionMechanism
from ablate.model.encoder_only import EncoderOnly
from ablate.model.layers import Linear
from ablate.model.multi_head import MultiHeadAttention
from ablate.model.positions import PositionalEncoding
from ablate.parts.variant import class_fields

# Two sentences of different lengths, padded with 0. OTHER_TARGET swaps the two targets, which agree
# in the first token only.
SOURCE = torch.tensor([[4, 5, 6, 7, 10, 8, 3], [8, 9, 3, 0, 0, 0, 0]])
TARGET = torch.tensor([[2, 5, 9, 6, 4, 4, 7], [2, 7, 4, 10, 5, 8, 6]])
OTHER_TARGET = TARGET.flip(0)
VOCAB_SIZE = 11
MAX_POSITIONS = 16  # more than the tokens of source and target together
SEEDS = (1, 2, 3)  # seeds of the random parameters
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))  # attributes that every module has


def check_layers(config: ModelConfig, sources: Path) -> None:
    """Check the classes that a model names, in each distinct layer: first each class alone, with
    built-in parts in the other places, then all classes together.

    Raises:
        StudyError: classes fail, or lack a property; the first fault of each class.
    """
    checked = []
    faults = FirstFaults()
    for layer in config.all_layers:
        one_layer = layer.single_layer(max_positions=MAX_POSITIONS)
        if one_layer not in checked:
            _check_layer(one_layer, sources, faults)
            checked.append(one_layer)
    faults.refuse()


def _check_layer(config: ModelConfig, sources: Path, faults: FirstFaults) -> None:
    """Check the classes of a layer, and collect their faults. Classes are checked together only if
    each of them works alone.
    """
    if config.score_cap is not None:
        # Turn the sinks on, as a probe: `context.weights` applies both the cap and the sinks, so if
        # the sinks have a gradient (see `_check_attention`), the class does not skip the cap.
        config = config.model_copy(update={"attention_sinks": True})
    classes = {}
    for field in KINDS.keys() & class_fields(ModelConfig):
        reference = parse_reference(getattr(config, field))
        if reference is not None:
            classes[field] = reference
    selections = [{field: classes[field]} for field in sorted(classes)]
    if len(classes) > 1:
        selections.append(dict(sorted(classes.items())))
    for selected in selections:
        if len(selected) > 1 and faults:
            return
        left_out = classes.keys() - selected
        defaults = {field: ModelConfig.model_fields[field].default for field in left_out}
        layer = config.model_copy(update=defaults)
        with faults.collect():
            check_classes(selected, sources, partial(_make_check, layer, selected, sources))


def _make_check(config: ModelConfig, classes: Mapping[str, Reference], sources: Path) -> LayerCheck:
    model = build(config, VOCAB_SIZE, seed=1, sources=sources)
    twin = build(config, VOCAB_SIZE, seed=1, sources=sources)
    parts = {field: load_class(classes[field], sources, nn.Module) for field in classes}
    return LayerCheck(model, twin, parts)


class LayerCheck(PropertyCheck):
    """A model of one layer. `PropertyCheck.run` says in which order the methods are called.

    model: the model.
    twin: a second model with the same configuration and seed.
    parts: the class of each part that is checked, by the field that names it.
    """

    def __init__(
        self, model: Transformer, twin: Transformer, parts: Mapping[str, type[nn.Module]]
    ) -> None:
        self.model, self.twin, self.parts = model, twin, parts

    def modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield each module that is checked, with the field that names its class."""
        for field, cls in self.parts.items():
            for module in self.model.modules():
                if type(module) is cls:
                    yield field, module

    # Shapes

    def check_results(self) -> None:
        """Refuse results of a wrong shape, and parameters without a gradient. The methods of the
        parts check their results from then on, in the comparisons, too.
        """
        for field, part in self.modules():
            _wrap_with_checks(part, field)
        states = self._states()
        if not bool(states.isfinite().all()):
            raise ClassFault("gives NaN or infinite outputs")
        states.square().mean().backward()
        parameter_ids = set(map(id, self.model.parameters()))
        for _, part in self.modules():
            _check_gradients(part, parameter_ids)
        for attention in self.model.modules():
            if isinstance(attention, MultiHeadAttention):
                _check_attention(attention)
                self._check_projections(attention)

    def _check_projections(self, attention: MultiHeadAttention) -> None:
        """Refuse projections on which the states depend without a gradient. A class may leave
        queries or keys unused, or only rank them: a small change then changes no state.
        """
        cut = []
        states = self._states()
        for name, projection in attention.named_children():
            if isinstance(projection, Linear) and not _has_gradient(projection.weight):
                before = projection.weight.detach().clone()
                with torch.no_grad():
                    projection.weight.mul_(1.001)
                    changed = self._states()
                    projection.weight.copy_(before)
                if not torch.equal(changed, states) and torch.equal(self._states(), states):
                    cut.append(name)
        if cut:
            raise ClassFault(
                f"its output depends on {' and '.join(cut)} of the attention but has no gradient "
                "there, so these weights would never learn; is there a detach()?",
                "forward",
            )

    # The four comparisons

    def compare_futures(self) -> Iterator[Comparison]:
        """Compare the states at the first token, which both targets share, between two targets with
        different later tokens.
        """
        if isinstance(self.model, EncoderOnly):  # in an encoder, a token may depend on later tokens
            return
        for states, when in ((self._states, ""), (self._states_in_training, " while training")):
            fault = f"lets a token depend on later ones{when}; {self._hint()}"
            yield Comparison(states(OTHER_TARGET)[:, :1], states(TARGET)[:, :1], fault)

    def compare_padding(self) -> Iterator[Comparison]:
        """Compare the states of the shorter sentence with and without padding."""
        without_padding = SOURCE[1:, :3]
        fault = f"lets padding change a sentence; {self._hint()}"
        states = self._states()[1:]
        if isinstance(self.model, EncoderOnly):
            yield Comparison(self.model.read(without_padding), states[:, :3], fault)
        else:
            yield Comparison(self.model(without_padding, TARGET[1:]), states, fault)

    def compare_steps(self) -> Iterator[Comparison]:
        """Compare incremental decoding of two hypotheses with the full forward pass."""
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
                    "; a class with `supports_query_masks` must give no weight to keys that "
                    "`context.mask()` excludes"
                )
                break
        fault = f"incremental decoding disagrees with the full forward pass; {hint}"
        yield Comparison(torch.stack(steps, dim=2), states, fault)

    def compare_repetitions(self) -> Iterator[Comparison]:
        """Compare the initial weights of both models, and the states of two calls."""
        yield Comparison(
            _weights(self.twin),
            _weights(self.model),
            "has other initial weights when it is made again with the same seed",
        )
        yield Comparison(
            self._states(),
            self._states(),
            "gives another result when called again: nothing may be random in eval mode",
        )
        yield Comparison(
            self._states_in_training(TARGET),
            self._states_in_training(TARGET),
            "gives another result when called again while training: it keeps state outside of its "
            "buffers, which a checkpoint does not have (use register_buffer), or it draws from "
            "another generator than torch's",
        )
        fault = "draws from torch's global generator while training, so no run could be resumed"
        if "attention" in self.parts:
            fault += "; let `context.weights` apply dropout"
        other_seed = self._states_in_training(TARGET, seed=2)
        yield Comparison(other_seed, self._states_in_training(TARGET), fault)

    def vary_parameters(self) -> Iterator[None]:
        """Yield with the initial parameters, then after each of three random perturbations, which
        add up. A perturbation whose states are not finite is skipped.
        """
        yield
        for seed in SEEDS:
            before = {name: value.clone() for name, value in self.model.state_dict().items()}
            _randomize(self.model, seed)
            if bool(self._states().isfinite().all()):
                yield
            else:  # such as with a parameter that must be positive
                self.model.load_state_dict(before)

    def _hint(self, decoding: bool = False) -> str:
        """The hint for the author of a part that is faulty, or faulty only in `decoding`."""
        for field, kind in KINDS.items():
            hint = kind.step_hint if decoding and kind.step_hint else kind.hint
            if field in self.parts and hint:
                return hint
        return "each token must be treated alone"

    def _states(self, target: Tensor = TARGET) -> Tensor:
        """States (B, T, d_model) of the target in eval mode; for an encoder-only model, states
        (B, S, d_model) of the source, including padding.
        """
        return self._forward(self.model.eval(), target)

    def _states_in_training(self, target: Tensor, seed: int = 1) -> Tensor:
        """The states of `_states` in training mode. The model's own dropout masks are always the
        same; `seed` seeds torch's global generator. Buffers that the forward pass changes, such as
        a running mean, are restored afterwards, as at a resume from a checkpoint.
        """
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.train()
        self.model.random.manual_seed(1)  # generator of the dropout masks
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            states = self._forward(self.model, target)
        self.model.load_state_dict(before)
        self.model.eval()
        return states

    def _forward(self, model: Transformer, target: Tensor) -> Tensor:
        if isinstance(model, EncoderOnly):
            return model.read(SOURCE)
        states: Tensor = model(SOURCE, target)
        return states


def _weights(model: Transformer) -> Tensor:
    return torch.cat([value.flatten() for value in model.state_dict().values()])


@torch.no_grad()
def _randomize(model: Transformer, seed: int) -> None:
    """Add normal noise to every parameter, with the standard deviation of the parameter's values.

    If all values are equal, the standard deviation is 0.5 for vectors and 1/sqrt(width) for
    matrices.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        deviation = float(parameter.std(correction=0))
        if deviation == 0.0:
            deviation = 0.5 if parameter.dim() < 2 else parameter.shape[-1] ** -0.5
        parameter.add_(deviation * torch.randn(parameter.shape, generator=generator))


# Results of a part


def _shape_of_first(*args: Any, **keywords: Any) -> tuple[int, ...]:
    """Shape of the first tensor among the arguments."""
    tensors = (value for value in (*args, *keywords.values()) if isinstance(value, Tensor))
    return tuple(next(tensors).shape)


@dataclass(frozen=True)
class _Contract:
    """What a method may do, and what it must return.

    shape: computes the shape of the result from the arguments; None if they do not determine it.
    may_broadcast: whether the result may have any shape that broadcasts to this one.
    may_be_none: whether the method may return None, for a part that adds nothing here.
    may_change_input: whether the method may change its input in place, because the residual
        connection, the attention and the cache of keys and values do not read it afterwards.
    """

    shape: Callable[..., tuple[int, ...]] | None = _shape_of_first
    may_broadcast: bool = False
    may_be_none: bool = False
    may_change_input: bool = False


# By the name of the method, for kinds with several methods; for other kinds by the field that names
# the class.
_CONTRACTS = {
    "activation": _Contract(may_change_input=True),
    "after": _Contract(may_change_input=True),
    "attention": _Contract(lambda Q, K, V, context: (*Q.shape[:3], V.shape[-1])),
    "bias": _Contract(
        lambda layer, Q, queries, keys: (*Q.shape[:3], keys.shape[-1]),
        may_broadcast=True,
        may_be_none=True,
    ),
    "embed": _Contract(may_change_input=True),
    "rotate": _Contract(may_change_input=True),
    "values": _Contract(shape=None, may_be_none=True),  # no argument has the size d_v
}


def _wrap_with_checks(part: nn.Module, field: str) -> None:
    """Replace the methods of a part by methods that check their results and inputs."""
    methods = KINDS[field].methods
    if isinstance(part, PositionalEncoding):
        base = PositionalEncoding
        if all(getattr(type(part), method) is getattr(base, method) for method in methods):
            raise ClassFault(f"defines none of {', '.join(methods)}, so it has no effect")
    for method in methods:
        key = method if len(methods) > 1 else field
        setattr(part, method, _checked(getattr(part, method), method, key))


def _checked(function: Callable[..., Any], method: str, key: str) -> Callable[..., Any]:
    """Wrap a method, so that it raises an error if the result is not a tensor of the expected shape
    (for a mixer, a tensor and a state), or if it changes an input in place that is read again.

    Args:
        function: the method of a part.
        method: name of the method.
        key: see `_CONTRACTS`.
    """
    contract = _CONTRACTS.get(key, _Contract())

    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        inputs = [value for value in (*args, *keywords.values()) if isinstance(value, Tensor)]
        before = [value.clone() for value in inputs]
        result = function(*args, **keywords)
        if not contract.may_change_input and not all(map(_is_same, inputs, before)):
            raise ClassFault(
                f"{method} changes its input in place, which other parts of the model read; "
                "make a new tensor",
                method,
            )
        if result is None and contract.may_be_none:
            return None
        tensor = _mixed_tokens(result) if key == "mixer" else result
        if not isinstance(tensor, Tensor):
            hint = "; is a return missing?" if tensor is None else ""
            raise ClassFault(
                f"{method} returns {type(tensor).__name__}, not a tensor{hint}", method
            )
        if contract.shape is not None:
            shape = tuple(tensor.shape)
            expected = contract.shape(*args, **keywords)
            is_broadcast = contract.may_broadcast and _is_broadcast(shape, expected)
            if shape != expected and not is_broadcast:
                raise ClassFault(f"{method} returns shape {shape}; expected {expected}", method)
        return result

    return checked


def _mixed_tokens(result: Any) -> Any:
    """Check that a mixer returns a pair (mixed tokens, state), and return the mixed tokens."""
    if not isinstance(result, tuple) or len(result) != 2:
        returned = type(result).__name__
        fault = f"forward returns {returned}, not a tensor (B, T, d_model) and a state"
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
    """Whether two tensors are equal. NaN equals NaN, because random parameters may produce it."""
    return torch.equal(x.nan_to_num(), y.nan_to_num())


def _is_broadcast(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return tuple(torch.broadcast_shapes(shape, to)) == to
    except RuntimeError:
        return False


# Gradients


def _check_gradients(part: nn.Module, parameter_ids: set[int]) -> None:
    """Refuse a parameter that would never be trained: its `id` is not among the model's."""
    for module in part.modules():
        for name, value in vars(module).items():
            if name in _MODULE_ATTRIBUTES:
                continue
            if any(id(tensor) not in parameter_ids for tensor in _trainable_tensors(value)):
                raise ClassFault(
                    f"its attribute {name} has parameters that torch does not know, so they "
                    "would never learn; use nn.Parameter, nn.ParameterList or nn.ModuleList"
                )
    for name, parameter in part.named_parameters():
        if parameter.grad is None:
            raise ClassFault(f"its parameter {name} has no gradient, so it would never learn")


def _has_gradient(parameter: nn.Parameter) -> bool:
    return parameter.grad is not None and bool(parameter.grad.any())


def _trainable_tensors(attribute: object) -> list[Tensor]:
    """Trainable tensors that are a plain attribute of a module, or in a list or dictionary that is
    one. Torch does not register such tensors as parameters.
    """
    values: Iterable[object] = [attribute]
    if isinstance(attribute, dict):
        values = attribute.values()
    elif isinstance(attribute, (list, tuple)):
        values = attribute
    tensors: list[object] = []
    for value in values:
        tensors += value.parameters() if isinstance(value, nn.Module) else [value]
    # Only leaves: an activation that a class stores requires a gradient too, but is not trained.
    return [
        tensor
        for tensor in tensors
        if isinstance(tensor, Tensor) and tensor.requires_grad and tensor.is_leaf
    ]


def _check_attention(attention: MultiHeadAttention) -> None:
    """Refuse attention that has no gradient for V, or bypasses `context.weights`."""
    if attention.value_projection.weight.grad is None:
        raise ClassFault(
            "its output has no gradient with respect to V, so the layers below would never learn",
            "forward",
        )
    if attention.sinks is not None and attention.sinks.grad is None:
        raise ClassFault(
            "its scores do not pass through `context.weights`, which applies score_cap and "
            "attention_sinks; a class without scores, or with a cap of its own, must set "
            "forms_scores = False",
            "forward",
        )
