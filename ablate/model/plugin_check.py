"""Check plug-in classes in a small model, before anything is trained with them.

A class may be harmless only as long as its parameters have their first values, such as a gate that
starts at zero. So everything that must hold for a trained model is checked with the initial
parameters, and again with random ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.errors import StudyError
from ablate.model import Transformer, build
from ablate.model.attention import AttentionMechanism
from ablate.model.encoder_only import EncoderOnly
from ablate.model.multi_head import MultiHeadAttention
from ablate.own.faults import OwnClassFault, faults_of, with_place
from ablate.own.reference import PREFIX, Reference, parse_reference
from ablate.parts.variant import plugin_fields

# Two sentences of different lengths, padded with 0.
_SOURCE = torch.tensor([[4, 5, 6, 7, 10, 8, 3], [8, 9, 3, 0, 0, 0, 0]])
_TARGET = torch.tensor([[2, 5, 9, 6, 4, 4, 7], [2, 7, 4, 10, 5, 8, 6]])
_VOCAB_SIZE = 11
_MAX_POSITIONS = 16  # more than both sides have together
_TOLERANCE = 1e-3
_SEEDS = (1, 2, 3)  # of random parameters
_FORWARD = "forward"
# The methods of a class, where it has others than `forward`.
_METHODS = {
    "positional_encoding": ("embed", "rotate", "bias", "values"),
    "norm_position": ("before", "after"),
}
# Their input is not read again: not by the residual connection, by the attention itself, or from
# the cache of keys and values.
_MAY_CHANGE = ("activation", "embed", "rotate", "after")

# What the author of each kind of component has at hand.
_ALONE = "each token must be treated alone"
_STATE = "a state is that after the last token that is no padding, for each row"
_OF_TORCH = frozenset(vars(nn.Module()))  # attributes of every module
_MASKS = {"attention": "`context.mask()` has the allowed keys", "mixer": _STATE}
_POSITIONS = {
    "mixer": _STATE,
    "attention": (
        "Q may have the last tokens alone: `context.mask()` has the allowed keys, and positions "
        "are `context.query_positions` and `context.key_positions`"
    ),
    "positional_encoding": "positions are the arguments `positions`, `queries` and `keys`",
}


def check_plugins(config: ModelConfig, sources: Path) -> None:
    """Pass two short sentences through one layer of the model, with each class alone and with all
    of them; where fields alternate, through each kind of layer.

    Args:
        config: the fields of the model, with pinned references to plug-in classes.
        sources: folder with their sources.

    Raises:
        StudyError: a class fails, returns a wrong shape, has a parameter without gradient, depends
            on anything but its input and the seed, counts tokens instead of using their positions,
            or lets a token depend on later ones or on padding, with its initial parameters or with
            random ones.
    """
    checked = []
    for layer in config.all_layers:
        alone = layer.with_one_layer(max_positions=_MAX_POSITIONS)
        if alone not in checked:
            _check_layer(alone, sources)
            checked.append(alone)


def _check_layer(config: ModelConfig, sources: Path) -> None:
    if config.score_cap is not None:
        # Their gradient shows whether scores come to where the cap is.
        config = config.model_copy(update={"attention_sinks": True})
    plugins = {}
    for field in sorted(plugin_fields(ModelConfig)):
        plugin = parse_reference(getattr(config, field))
        if plugin is not None:
            plugins[field] = plugin
    for field, plugin in plugins.items():
        others = {name: ModelConfig.model_fields[name].default for name in plugins if name != field}
        _check(config.model_copy(update=others), {field: plugin}, sources)
    if len(plugins) > 1:
        _check(config, plugins, sources)


def _check(config: ModelConfig, plugins: Mapping[str, Reference], sources: Path) -> None:
    """Check a model with these classes, by field; a fault is theirs."""
    classes = list(plugins.values())
    with faults_of(classes, sources):
        try:
            model, twin = (build(config, _VOCAB_SIZE, seed=1, sources=sources) for _ in range(2))
            _check_model(model, twin, plugins)
        except StudyError as error:
            raise with_place(error, classes, sources) from None


def _check_model(model: Transformer, twin: Transformer, plugins: Mapping[str, Reference]) -> None:
    if not all(map(torch.equal, model.state_dict().values(), twin.state_dict().values())):
        raise OwnClassFault("has other initial weights when it is made again with the same seed")
    for field, plugin in plugins.items():
        for part in model.modules():
            kind = type(part)
            if kind.__name__ == plugin.name and kind.__module__ == f"{PREFIX}{plugin.digest}":
                _check_results(part, field)
    states = _states(model.eval())
    if not bool(states.isfinite().all()):
        raise OwnClassFault("gives states that are not finite")
    states.square().mean().backward()
    _check_gradients(model)
    with torch.no_grad():
        # Both without gradients: with them, some processors round sums in another order.
        if not torch.equal(_states(model), _states(model)):
            raise OwnClassFault(
                "gives other states when called again: nothing may be random when evaluating"
            )
        if not torch.equal(_in_training(model, 1), _in_training(model, 2)):
            fault = "draws from torch's own generator while training, so no run could be resumed"
            if "attention" in plugins:
                fault += "; see `context.weights`"
            raise OwnClassFault(fault)
        _check_dependence(model, plugins)
        for seed in _SEEDS:
            before = {name: value.clone() for name, value in model.state_dict().items()}
            _randomize(model, seed)
            if bool(_states(model.eval()).isfinite().all()):
                _check_dependence(model, plugins)
            else:  # such as a parameter that must be positive: try others
                model.load_state_dict(before)


def _is_own(function: object) -> bool:
    """Whether a class or a function is the user's, and not ours or torch's."""
    return getattr(function, "__module__", "").startswith(PREFIX)


# Results


def _same(x: Tensor, *rest: Any) -> tuple[int, ...]:
    return tuple(x.shape)


def _of_heads(Q: Tensor, K: Tensor, V: Tensor, context: Any) -> tuple[int, ...]:
    return (*Q.shape[:3], V.shape[-1])


def _of_scores(layer: int, Q: Tensor, queries: Tensor, keys: Tensor) -> tuple[int, ...]:
    return (*Q.shape[:3], keys.shape[-1])


# The shape of a result, from the arguments, where it is not that of the first one.
_SHAPES: dict[str, Callable[..., tuple[int, ...]]] = {"attention": _of_heads, "bias": _of_scores}


def _check_results(part: nn.Module, field: str) -> None:
    """Let the methods that a class defines check each of their results from now on."""
    methods = _METHODS.get(field, (_FORWARD,))
    own = [method for method in methods if _is_own(getattr(type(part), method, None))]
    if field == "positional_encoding" and not own:
        raise OwnClassFault(f"defines none of {', '.join(methods)}, so it has no effect")
    for method in own:
        setattr(part, method, _checked(getattr(part, method), method, field))


def _checked(function: Callable[..., Any], method: str, field: str) -> Callable[..., Any]:
    """The function, whose result must be a tensor of the expected shape, with a state in a mixer,
    and whose input must stay where others read it.
    """
    kind = method if field in _METHODS else field

    @functools.wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        inputs = [value for value in (*args, *keywords.values()) if isinstance(value, Tensor)]
        before = [value.clone() for value in inputs]
        result = made = function(*args, **keywords)
        if kind not in _MAY_CHANGE and not all(map(_is_same, inputs, before)):
            raise OwnClassFault(
                f"{method} changes its input in place, which other parts of the model read; "
                "make a new tensor",
                method,
            )
        if kind in ("bias", "values") and result is None:
            return None
        if kind == "mixer":
            made = _without_state(result)
        if not isinstance(made, Tensor):
            returned = f"{type(made).__name__}, not a tensor"
            if made is None:
                returned += "; is a return missing?"
            raise OwnClassFault(f"{method} returns {returned}", method)
        if kind != "values":  # whose arguments do not say the size of its vectors
            shape_of: Callable[..., tuple[int, ...]] = _SHAPES.get(kind, _same)
            given, shape = tuple(made.shape), shape_of(*args, **keywords)
            if given != shape and not (kind == "bias" and _is_broadcast(given, shape)):
                raise OwnClassFault(f"{method} returns shape {given}; expected {shape}", method)
        return result

    return checked


def _without_state(result: Any) -> Any:
    """The first part of what a mixer returns, which the state follows."""
    if not isinstance(result, tuple) or len(result) != 2:
        given = type(result).__name__
        raise OwnClassFault(f"forward returns {given}, not (B, T, d_model) and a state", _FORWARD)
    mixed, state = result
    if not hasattr(state, "select"):
        raise OwnClassFault(
            f"forward returns the state {type(state).__name__}, which has no method "
            "select(rows) for the rows of a batch",
            _FORWARD,
        )
    return mixed


def _is_same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors are equal, also NaN, which random parameters may give."""
    return torch.equal(x.nan_to_num(), y.nan_to_num())


def _is_broadcast(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return torch.broadcast_shapes(shape, to) == to
    except RuntimeError:
        return False


# Gradients


def _check_gradients(model: Transformer) -> None:
    """Refuse a parameter of a class, or a projection of values, that would never learn."""
    known = set(map(id, model.parameters()))
    for part in model.modules():
        if _is_own(type(part)):
            for name, value in vars(part).items():
                if name not in _OF_TORCH and any(id(x) not in known for x in _hidden(value)):
                    raise OwnClassFault(
                        f"its attribute {name} has parameters that torch does not know, so they "
                        "would never learn; use nn.Parameter, nn.ParameterList or nn.ModuleList"
                    )
            for name, parameter in part.named_parameters():
                if parameter.grad is None:
                    raise OwnClassFault(
                        f"its parameter {name} has no gradient, so it would never learn"
                    )
        if not isinstance(part, MultiHeadAttention):
            continue
        if part.values_from.weight.grad is None:
            raise OwnClassFault(
                "its output has no gradient with respect to V, so nothing before it would learn",
                _FORWARD,
            )
        if part.sinks is not None and part.sinks.grad is None:
            raise OwnClassFault(
                "its scores do not pass `context.weights`, which applies score_cap and "
                "attention_sinks; a class without scores, or with its own cap, says "
                "forms_scores = False",
                _FORWARD,
            )


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


# Dependence on other tokens


def _check_dependence(model: Transformer, plugins: Mapping[str, Reference]) -> None:
    """Refuse parts that let a token depend on later ones, on padding, or on how many tokens come at
    once, as one that counts tokens does in place of using their positions.
    """
    hint = _hint(_MASKS, plugins)
    states = _states(model.eval())
    if isinstance(model, EncoderOnly):  # in which a token may depend on all others
        if not _close(model.read(_SOURCE[1:, :3]), states[1:, :3]):
            raise OwnClassFault(f"lets padding change a sentence; {hint}")
        return
    turned = _TARGET.flip(0)  # each source with the target of the other one
    swapped = _states(model, turned)
    if not _close(swapped[:, :1], states[:, :1]):  # at the begin mark only what comes later differs
        raise OwnClassFault(f"lets a token depend on later ones; {hint}")
    trained = _in_training(model, 1)
    if not _close(trained[:, :1], _in_training(model, 1, turned)[:, :1]):
        raise OwnClassFault(f"lets a token depend on later ones while training; {hint}")
    if not _close(model.eval()(_SOURCE[1:, :3], _TARGET[1:]), states[1:]):
        raise OwnClassFault(f"lets padding change a sentence; {hint}")
    cache = model.start(_SOURCE, 2)
    hypotheses = torch.stack([_TARGET, turned], dim=1)  # (B, 2, T)
    steps = [model.step(tokens, cache) for tokens in hypotheses.unbind(2)]
    if not _close(torch.stack(steps, dim=2), torch.stack([states, swapped], dim=1)):
        hint = _hint(_POSITIONS, plugins)
        mechanisms = [part for part in model.modules() if isinstance(part, AttentionMechanism)]
        if any(part.supports_query_masks for part in mechanisms if _is_own(type(part))):
            hint += (
                "; with `supports_query_masks`, all that `context.mask()` leaves out "
                "must be left out"
            )
        raise OwnClassFault(f"incremental decoding disagrees with the full forward pass; {hint}")


def _hint(hints: Mapping[str, str], plugins: Mapping[str, Reference]) -> str:
    return next((text for field, text in hints.items() if field in plugins), _ALONE)


# Inputs


def _states(model: Transformer, target: Tensor = _TARGET) -> Tensor:
    """(B, T, d_model), of which the encoder alone has states of padding too."""
    if isinstance(model, EncoderOnly):
        return model.read(_SOURCE)
    states: Tensor = model(_SOURCE, target)
    return states


def _in_training(model: Transformer, seed: int, target: Tensor = _TARGET) -> Tensor:
    """States in training mode, with the same dropout masks and torch's own generator seeded."""
    model.train().random.manual_seed(1)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return _states(model, target)


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


def _close(x: Tensor, y: Tensor) -> bool:
    scale = max(1.0, float(y.abs().max()))
    return x.shape == y.shape and torch.allclose(x, y, atol=_TOLERANCE * scale)
