"""Check plug-in classes in a small model, before anything is trained with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.config.plugins import PREFIX, describe, references
from ablate.errors import AblateError, StudyError
from ablate.model import Transformer, build
from ablate.model.attention import AttentionMechanism, MultiHeadAttention
from ablate.model.positions import PositionalEncoding

# Two sentences of different lengths, padded with 0.
_SOURCE = ((4, 5, 6, 7, 3), (8, 9, 3, 0, 0))
_TARGET = ((2, 5, 9, 6), (2, 7, 4, 10))
_VOCAB_SIZE = 11
_MAX_POSITIONS = 16  # more than both sides have together
_TOLERANCE = 1e-3
_METHODS = ("embed", "rotate", "bias", "values")  # of a positional encoding


def check_plugins(config: ModelConfig, sources: Path) -> None:
    """Pass two short sentences through one layer of the model.

    Args:
        config: the fields of the model, with pinned references to plug-in classes.
        sources: folder with their sources.

    Raises:
        StudyError: a class fails, returns a wrong shape, has a parameter without gradient, depends on anything but its
            input and the seed, or lets a token depend on later ones or on padding.
    """
    plugins = references(config)
    small = {"n_layers": 1, "encoder_layers": None, "decoder_layers": None, "max_positions": _MAX_POSITIONS}
    config = config.model_copy(update=small)
    try:
        model, twin = (build(config, _VOCAB_SIZE, seed=1, sources=sources) for _ in range(2))
        fault = next(_faults(model, twin), None)
    except AblateError:
        raise
    except Exception as error:
        raise StudyError(describe(plugins, error)) from None
    if fault is not None:
        raise StudyError(f"{', '.join(f'{plugin.module}:{plugin.name}' for plugin in plugins)}: {fault}")


def _faults(model: Transformer, twin: Transformer) -> Iterator[str]:
    """Yield what is wrong with a model, and with it and a twin built from the same seed."""
    parts = [part for part in model.modules() if type(part).__module__.startswith(PREFIX)]
    if any(isinstance(part, PositionalEncoding) and _overrides_nothing(part) for part in parts):
        yield f"defines none of {', '.join(_METHODS)}, so it has no effect"
    if not all(map(torch.equal, model.state_dict().values(), twin.state_dict().values())):
        yield "has other initial weights when it is made again with the same seed"
    source, target = torch.tensor(_SOURCE), torch.tensor(_TARGET)
    states = model.eval()(source, target)  # (B, T, d_model)
    expected = (*target.shape, model.config.d_model)
    if states.shape != expected:
        yield f"gives states of shape {tuple(states.shape)}; expected {expected}"
    if not bool(states.isfinite().all()):
        yield "gives states that are not finite"
    states.square().mean().backward()
    yield from _without_gradient(model, parts)
    with torch.no_grad():
        if not torch.equal(model(source, target), states):
            yield "gives other states when called again: nothing may be random when evaluating"
        if not torch.equal(_in_training(model, 1), _in_training(model, 2)):
            yield "draws from torch's own generator while training, so no run could be resumed; see `context.weights`"
        masked = any(isinstance(part, (AttentionMechanism, PositionalEncoding)) for part in parts)
        hint = "`context.mask()` has the allowed keys" if masked else "each token must be treated alone"
        swapped = model.eval()(source, target.flip(0))  # each source with the other's target
        if not _close(swapped[:, :1], states[:, :1]):  # at the begin mark only what comes later differs
            yield f"lets a token depend on later ones; {hint}"
        if not _close(model(source[1:, :3], target[1:]), states[1:]):
            yield f"lets padding change a sentence; {hint}"
        cache = model.start(source, 2)
        hypotheses = torch.stack([target, target.flip(0)], dim=1)  # (B, 2, T)
        steps = [model.step(tokens, cache) for tokens in hypotheses.unbind(2)]
        if not _close(torch.stack(steps, dim=2), torch.stack([states, swapped], dim=1)):
            hint = "each token must be treated alone"
            if masked:
                hint = "positions are `context.query_positions` and `context.key_positions`"
            if any(isinstance(part, AttentionMechanism) and part.supports_query_masks for part in parts):
                hint += "; with `supports_query_masks`, all that `context.mask()` leaves out must be left out"
            yield f"incremental decoding disagrees with the full forward pass; {hint}"


def _overrides_nothing(part: PositionalEncoding) -> bool:
    return all(getattr(type(part), method) is getattr(PositionalEncoding, method) for method in _METHODS)


def _without_gradient(model: Transformer, parts: list[nn.Module]) -> Iterator[str]:
    """Yield what would never learn: a parameter of a part, or the projection of attention's values."""
    for part in parts:
        for name, parameter in part.named_parameters():
            if parameter.grad is None:
                yield f"its parameter {name} has no gradient, so it would never learn"
    for module in model.modules():
        if isinstance(module, MultiHeadAttention) and module.W_V.weight.grad is None:
            yield "its output has no gradient with respect to V, so nothing before it would learn"


def _in_training(model: Transformer, seed: int) -> Tensor:
    """States in training mode with the same dropout masks each time, and torch's own generator seeded."""
    model.train().random.manual_seed(1)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        states: Tensor = model(torch.tensor(_SOURCE), torch.tensor(_TARGET))
    return states


def _close(x: Tensor, y: Tensor) -> bool:
    return torch.allclose(x, y, atol=_TOLERANCE)
