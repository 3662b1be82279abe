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
from ablate.config.plugins import (
    PREFIX,
    Reference,
    describe,
    parse_reference,
    place_of,
    plugin_fields,
)
from ablate.errors import StoreError, StudyError
from ablate.model import Transformer, build
from ablate.model.attention import AttentionMechanism, MultiHeadAttention
from ablate.model.encoder_only import EncoderOnly
from ablate.model.positions import PositionalEncoding
from ablate.model.residual import Residual

# Two sentences of different lengths, padded with 0.
_SOURCE = ((4, 5, 6, 7, 10, 8, 3), (8, 9, 3, 0, 0, 0, 0))
_TARGET = ((2, 5, 9, 6, 4, 4, 7), (2, 7, 4, 10, 5, 8, 6))
_VOCAB_SIZE = 11
_MAX_POSITIONS = 16  # more than both sides have together
_TOLERANCE = 1e-3
_SEEDS = (1, 2, 3)  # of random parameters
_METHODS = ("embed", "rotate", "bias", "values")  # of a positional encoding
_FORWARD = "forward"

# What the author of each kind of component has at hand.
_ALONE = "each token must be treated alone"
_MASK = "`context.mask()` has the allowed keys"
_STATE = "a state is that after the last token that is no padding, for each row"
_POSITIONS = {
    "mixer": _STATE,
    "attention": "positions are `context.query_positions` and `context.key_positions`",
    "positional_encoding": "positions are the arguments `positions`, `queries` and `keys`",
}


class _Fault(Exception):  # noqa: N818
    """A violated condition; `method` is the one that violates it, if that is known."""

    def __init__(self, text: str, method: str = "") -> None:
        super().__init__(text)
        self.text, self.method = text, method


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
    small = {
        "n_layers": 1,
        "encoder_layers": None,
        "decoder_layers": None,
        "max_positions": _MAX_POSITIONS,
    }
    checked = []
    for layer in config.all_layers:
        alone = layer.model_copy(update=small)
        if alone not in checked:
            _check_layer(alone, sources)
            checked.append(alone)


def _check_layer(config: ModelConfig, sources: Path) -> None:
    if config.score_cap is not None:
        # Their gradient shows whether scores come to where the cap is.
        config = config.model_copy(update={"attention_sinks": True})
    named = {
        field: parse_reference(getattr(config, field))
        for field in sorted(plugin_fields(ModelConfig))
    }
    plugins = {field: plugin for field, plugin in named.items() if plugin is not None}
    for field, plugin in plugins.items():
        others = {name: ModelConfig.model_fields[name].default for name in plugins if name != field}
        _check(config.model_copy(update=others), {field: plugin}, sources)
    if len(plugins) > 1:
        _check(config, plugins, sources)


def _check(config: ModelConfig, plugins: Mapping[str, Reference], sources: Path) -> None:
    """Check a model with these classes, by field; a fault is theirs."""
    names = ", ".join(f"{plugin.module}:{plugin.name}" for plugin in plugins.values())
    method = ""

    def place() -> str:
        plugin = next(iter(plugins.values()))
        return place_of(plugin, (sources / plugin.file).read_bytes(), method)

    try:
        model, twin = (build(config, _VOCAB_SIZE, seed=1, sources=sources) for _ in range(2))
        _check_model(model, twin, plugins)
    except StoreError:
        raise
    except StudyError as error:  # of loading, or of the combination with other fields
        located = any(
            error.lines[0].startswith(f"{plugin.written_file}:") for plugin in plugins.values()
        )
        raise error if located else StudyError(f"{place()}: {error.lines[0]}") from None
    except _Fault as fault:
        method = fault.method
        raise StudyError(f"{place()}: {names}: {fault.text}") from None
    except Exception as error:
        raise StudyError(describe(list(plugins.values()), error, place())) from None


def _check_model(model: Transformer, twin: Transformer, plugins: Mapping[str, Reference]) -> None:
    parts = {
        field: [
            part
            for part in model.modules()
            if type(part).__name__ == plugin.name and _is_of(part, plugin)
        ]
        for field, plugin in plugins.items()
    }
    for part in parts.get("positional_encoding", ()):
        if all(_is_inherited(part, method) for method in _METHODS):
            raise _Fault(f"defines none of {', '.join(_METHODS)}, so it has no effect")
    if not all(map(torch.equal, model.state_dict().values(), twin.state_dict().values())):
        raise _Fault("has other initial weights when it is made again with the same seed")
    for field, each in parts.items():
        for part in each:
            _check_results(part, field)
    states = _states(model)
    if not bool(states.isfinite().all()):
        raise _Fault("gives states that are not finite")
    states.square().mean().backward()
    _check_gradients(model)
    with torch.no_grad():
        if not torch.equal(_states(model), states):
            raise _Fault(
                "gives other states when called again: nothing may be random when evaluating"
            )
        if not torch.equal(_in_training(model, 1), _in_training(model, 2)):
            raise _Fault(
                "draws from torch's own generator while training, so no run could be resumed; see "
                "`context.weights`"
            )
        _check_dependence(model, parts)
        for seed in _SEEDS:
            before = [parameter.clone() for parameter in model.parameters()]
            _randomize(model, seed)
            if bool(_states(model).isfinite().all()):
                _check_dependence(model, parts)
            else:  # such as a parameter that must be positive: try others
                for parameter, value in zip(model.parameters(), before, strict=True):
                    parameter.copy_(value)


def _is_of(part: nn.Module, plugin: Reference) -> bool:
    return type(part).__module__ == f"{PREFIX}{plugin.digest}"


def _is_inherited(part: nn.Module, method: str) -> bool:
    """Whether a method is one of ours, or of torch."""
    function = getattr(type(part), method, None)
    return not getattr(function, "__module__", "").startswith(PREFIX)


# Shapes


def _same(x: Tensor, *rest: Any) -> tuple[int, ...]:
    return tuple(x.shape)


def _of_heads(Q: Tensor, K: Tensor, V: Tensor, context: Any) -> tuple[int, ...]:
    return (*Q.shape[:3], V.shape[-1])


def _of_scores(layer: int, Q: Tensor, queries: Tensor, keys: Tensor) -> tuple[int, ...]:
    return (*Q.shape[:3], keys.shape[-1])


# The shape of each result, from the arguments; None where they do not say.
_EXPECTED: dict[str, Callable[..., tuple[int, ...]] | None] = {
    "attention": _of_heads,
    "activation": _same,
    "norm": _same,
    "feed_forward": _same,
    "before": _same,
    "after": _same,
    "embed": _same,
    "rotate": _same,
    "bias": _of_scores,
    "values": None,
}
_ADDED = ("bias", "values")  # results that may be None, and are broadcast
# Their input is read again: by the residual connection, by the attention itself, or from the cache
# of keys and values.
_READ_AGAIN = ("attention", "norm", "feed_forward", "before", "bias", "values")


# The methods of a class, where it has others than `forward`.
_METHODS_OF = {"positional_encoding": _METHODS, "norm_position": ("before", "after")}


def _check_results(part: nn.Module, field: str) -> None:
    """Let the methods of a class check each of their results from now on."""
    if field == "mixer":
        part.forward = _checked_mixer(part.forward)
        return
    for method in _METHODS_OF.get(field, (_FORWARD,)):
        if not _is_inherited(part, method):
            expected = _EXPECTED[method if method in _EXPECTED else field]
            keeps_input = (method if method in _EXPECTED else field) in _READ_AGAIN
            setattr(part, method, _checked(getattr(part, method), expected, method, keeps_input))


def _checked_mixer(mix: Callable[..., Any]) -> Callable[..., Any]:
    """The `forward` of a mixer, whose results must be of its shape and a state."""

    @functools.wraps(mix)
    def checked(x: Tensor, past: Any, context: Any) -> Any:
        before = x.clone()
        result: Any = mix(x, past, context)
        if not _is_same(x, before):
            raise _Fault("forward changes its input in place; make a new tensor", _FORWARD)
        if not isinstance(result, tuple) or len(result) != 2:
            given = type(result).__name__
            raise _Fault(f"forward returns {given}, not (B, T, d_model) and a state", _FORWARD)
        mixed, state = result
        if not isinstance(mixed, Tensor) or mixed.shape != x.shape:
            given = str(tuple(mixed.shape)) if isinstance(mixed, Tensor) else type(mixed).__name__
            raise _Fault(f"forward returns {given}, not a tensor {tuple(x.shape)}", _FORWARD)
        if not hasattr(state, "select"):
            raise _Fault(
                f"forward returns the state {type(state).__name__}, which has no method "
                "select(rows) for the rows of a batch",
                _FORWARD,
            )
        return result

    return checked


def _checked(
    function: Callable[..., Any],
    expected: Callable[..., tuple[int, ...]] | None,
    name: str,
    keeps_input: bool,
) -> Any:
    """The function, whose result must be a tensor of the expected shape, and whose input must stay
    if `keeps_input`.
    """

    @functools.wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        inputs = [
            value
            for value in (*args, *keywords.values())
            if keeps_input and isinstance(value, Tensor)
        ]
        before = [value.clone() for value in inputs]
        result = function(*args, **keywords)
        if not all(map(_is_same, inputs, before)):
            raise _Fault(
                f"{name} changes its input in place, which other parts of the model read; "
                "make a new tensor",
                name,
            )
        if result is None and name in _ADDED:
            return None
        if not isinstance(result, Tensor):
            hint = "; is a return missing?" if result is None else ""
            raise _Fault(f"{name} returns {type(result).__name__}, not a tensor{hint}", name)
        shape = expected(*args, **keywords) if expected is not None else tuple(result.shape)
        if tuple(result.shape) != shape and not (
            name in _ADDED and _is_broadcast(result.shape, shape)
        ):
            raise _Fault(f"{name} returns shape {tuple(result.shape)}; expected {shape}", name)
        return result

    return checked


def _is_same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors are equal; NaN, which random parameters may give, counts as equal to
    itself.
    """
    return torch.equal(x.nan_to_num(), y.nan_to_num())


def _is_broadcast(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return torch.broadcast_shapes(shape, to) == to
    except RuntimeError:
        return False


# Gradients


def _check_gradients(model: Transformer) -> None:
    """Refuse parts that would never learn: a parameter of a class, or the projection of attention's
    values.
    """
    for part in model.modules():
        for name, parameter in (
            part.named_parameters() if type(part).__module__.startswith(PREFIX) else ()
        ):
            if parameter.grad is None:
                raise _Fault(f"its parameter {name} has no gradient, so it would never learn")
        if isinstance(part, MultiHeadAttention) and part.values_from.weight.grad is None:
            raise _Fault(
                "its output has no gradient with respect to V, so nothing before it would learn",
                _FORWARD,
            )
        if isinstance(part, MultiHeadAttention) and _is_unread(part.sinks):
            raise _Fault(
                "its scores do not pass `context.weights`, which applies score_cap and "
                "attention_sinks; a class without scores, or with its own cap, says "
                "forms_scores = False",
                _FORWARD,
            )


def _is_unread(parameter: nn.Parameter | None) -> bool:
    return parameter is not None and parameter.grad is None


# Dependence on other tokens


def _check_dependence(model: Transformer, parts: Mapping[str, list[nn.Module]]) -> None:
    """Refuse parts that let a token depend on later ones, on padding, or on how many tokens come at
    once.
    """
    model.eval()
    for field, each in parts.items():
        for part in each:
            _CHECKS[field](part, model.config)
    source, target = torch.tensor(_SOURCE), torch.tensor(_TARGET)
    hint = _MASK if "attention" in parts else _STATE if "mixer" in parts else _ALONE
    if isinstance(model, EncoderOnly):  # in which a token may depend on all others
        if not _close(model.read(source[1:, :2]), _states(model)[1:, :2]):
            raise _Fault(f"lets padding change a sentence; {hint}")
        return
    states, swapped = (
        _states(model),
        model(source, target.flip(0)),
    )  # each source with the other's target
    if not _close(swapped[:, :1], states[:, :1]):  # at the begin mark only what comes later differs
        raise _Fault(f"lets a token depend on later ones; {hint}")
    trained, other = (_in_training(model, 1, target) for target in (target, target.flip(0)))
    if not _close(trained[:, :1], other[:, :1]):
        raise _Fault(f"lets a token depend on later ones while training; {hint}")
    if not _close(model.eval()(source[1:, :3], target[1:]), states[1:]):
        raise _Fault(f"lets padding change a sentence; {hint}")
    cache = model.start(source, 2)
    hypotheses = torch.stack([target, target.flip(0)], dim=1)  # (B, 2, T)
    steps = [model.step(tokens, cache) for tokens in hypotheses.unbind(2)]
    if not _close(torch.stack(steps, dim=2), torch.stack([states, swapped], dim=1)):
        hint = next((text for field, text in _POSITIONS.items() if field in parts), _ALONE)
        if any(
            isinstance(part, AttentionMechanism) and part.supports_query_masks
            for part in parts.get("attention", ())
        ):
            hint += (
                "; with `supports_query_masks`, all that `context.mask()` leaves out "
                "must be left out"
            )
        raise _Fault(f"incremental decoding disagrees with the full forward pass; {hint}")


_PICKED = [1, 3, 4]  # tokens that are computed again without the others


def _check_tokens(part: nn.Module, width: int) -> None:
    """Refuse a function of (B, T, width) that computes a token from others."""
    x = _noise(2, 6, width)
    if not _close(part(x[:, _PICKED]), part(x)[:, _PICKED]):
        raise _Fault(f"lets a token depend on others; {_ALONE}", _FORWARD)


def _check_residual(part: Residual, width: int) -> None:
    """Refuse residual connections that compute a token of the stream from others."""
    x, output = _noise(2, 6, width), _noise(2, 6, width).flip(1)
    alone = part.after(x[:, _PICKED], output[:, _PICKED])
    if not _close(part.before(x[:, _PICKED]), part.before(x)[:, _PICKED]):
        raise _Fault(f"lets a token depend on others; {_ALONE}", "before")
    if not _close(alone, part.after(x, output)[:, _PICKED]):
        raise _Fault(f"lets a token depend on others; {_ALONE}", "after")


def _check_encoding(part: PositionalEncoding, config: ModelConfig) -> None:
    """Refuse an encoding that computes a token from others, or from its index in place of its
    position.

    Each method must give the same for some tokens alone, with their positions, as for these tokens
    among all.
    """
    positions = torch.arange(6)
    some = positions[_PICKED]
    h, x, Q = config.n_heads, _noise(2, 6, config.d_model), _noise(2, config.n_heads, 6, config.d_k)
    weights = _noise(2, h, 6, 6).softmax(-1)
    among = torch.zeros_like(weights)  # weights of the picked keys only
    among[..., _PICKED] = weights[..., _PICKED]
    square = torch.ones(1, 1, 6, 6)  # a bias may be broadcast
    pairs: dict[str, Callable[[], tuple[Any, Any]]] = {
        "embed": lambda: (part.embed(x[:, _PICKED], some), part.embed(x, positions)[:, _PICKED]),
        "rotate": lambda: (
            part.rotate(Q[:, :, _PICKED], some),
            part.rotate(Q, positions)[:, :, _PICKED],
        ),
        "bias": lambda: (
            _times(
                part.bias(0, Q[:, :, _PICKED], some, some), square[..., _PICKED, :][..., _PICKED]
            ),
            _times(part.bias(0, Q, positions, positions), square, _PICKED),
        ),
        "values": lambda: (
            part.values(0, weights[:, :, _PICKED][..., _PICKED], some, some),
            part.values(0, among[:, :, _PICKED], some, positions),
        ),
    }
    for method, pair in pairs.items():
        if _is_inherited(part, method):
            continue
        alone, among_all = pair()
        if alone is None and among_all is None:
            continue
        if alone is None or among_all is None or not _close(alone, among_all):
            raise _Fault(
                f"{method} gives a token a different result beside other tokens: it must depend "
                f"only on the token and its position; {_POSITIONS['positional_encoding']}",
                method,
            )


def _times(bias: Tensor | None, ones: Tensor, picked: list[int] | None = None) -> Tensor | None:
    if bias is None:
        return None
    full = bias * ones
    return full if picked is None else full[..., picked, :][..., picked]


_CHECKS: dict[str, Callable[[Any, ModelConfig], None]] = {
    "attention": lambda part, config: None,  # only the model has contexts
    "mixer": lambda part, config: None,
    "positional_encoding": _check_encoding,
    "activation": lambda part, config: _check_tokens(part, config.d_ff),
    "norm": lambda part, config: _check_tokens(part, config.d_model),
    "norm_position": lambda part, config: _check_residual(part, config.d_model),
    "feed_forward": lambda part, config: _check_tokens(part, config.d_model),
}


# Inputs


def _states(model: Transformer) -> Tensor:
    """(B, T, d_model), of which the encoder alone has states of padding too."""
    return _run(model.eval(), torch.tensor(_SOURCE), torch.tensor(_TARGET))


def _run(model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    states: Tensor = model.read(source) if isinstance(model, EncoderOnly) else model(source, target)
    return states


def _in_training(model: Transformer, seed: int, target: Tensor | None = None) -> Tensor:
    """States in training mode with the same dropout masks each time, and torch's own generator
    seeded.
    """
    model.train().random.manual_seed(1)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return _run(
            model, torch.tensor(_SOURCE), torch.tensor(_TARGET) if target is None else target
        )


def _randomize(model: Transformer, seed: int) -> None:
    """Add noise to every parameter: as large as its values, or where all are equal, as large as
    initial weights.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        spread = float(parameter.std()) if parameter.numel() > 1 else 0.0
        if spread == 0.0:
            spread = 0.5 if parameter.dim() < 2 else parameter.shape[-1] ** -0.5
        parameter.add_(spread * torch.randn(parameter.shape, generator=generator))


def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def _close(x: Tensor, y: Tensor) -> bool:
    scale = max(1.0, float(y.abs().max()))
    return x.shape == y.shape and torch.allclose(x, y, atol=_TOLERANCE * scale)
