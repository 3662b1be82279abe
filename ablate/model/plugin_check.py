"""Try a user's own variants in a small model, before anything is trained with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.config.plugins import references
from ablate.errors import AblateError, StudyError
from ablate.model.attention import MultiHeadAttention
from ablate.model.build import build
from ablate.model.mechanisms import Mechanism
from ablate.model.plugins import PREFIX, told
from ablate.model.positions import PositionalEncoding
from ablate.model.transformer import Transformer

_SOURCE = ((4, 5, 6, 7, 3), (8, 9, 3, 0, 0))
_TARGET = ((2, 5, 9, 6), (2, 7, 4, 10))
_V = 11
_PLACES = 16  # more than both sides have together
_CLOSE = 1e-3
_HOOKS = ("embed", "rotate", "bias", "values")


def try_out(config: ModelConfig, sources: Path) -> None:
    """Pass two short sentences through one layer of the model.

    Raises:
        StudyError: a variant fails, returns what it should not, learns nothing, depends on something other than its
            input and the seed, or lets a token see those after it.
    """
    own = references(config)
    small = {"n_layers": 1, "encoder_layers": None, "decoder_layers": None, "max_positions": _PLACES}
    shallow = config.model_copy(update=small)
    try:
        models = [build(shallow, _V, seed=1, sources=sources) for _ in range(2)]
        fault = next(_faults(*models), None)
    except AblateError:
        raise
    except Exception as error:
        raise StudyError(told(own, error)) from None
    if fault is not None:
        raise StudyError(f"{', '.join(f'{one.module}:{one.name}' for one in own)}: {fault}")


def _faults(model: Transformer, again: Transformer) -> Iterator[str]:
    """What is wrong with a model, of which two were made with one seed."""
    parts = [part for part in model.modules() if type(part).__module__.startswith(PREFIX)]
    if any(isinstance(part, PositionalEncoding) and _is_silent(part) for part in parts):
        yield f"defines none of {', '.join(_HOOKS)}, so it says nothing of positions"
    if not all(map(torch.equal, model.state_dict().values(), again.state_dict().values())):
        yield "has other initial weights when it is made again with the same seed"
    source, target = torch.tensor(_SOURCE), torch.tensor(_TARGET)
    states = model.eval()(source, target)
    expected = (*target.shape, model.config.d_model)
    if states.shape != expected:
        yield f"gives states of shape {tuple(states.shape)}; expected {expected}"
    if not bool(states.isfinite().all()):
        yield "gives states that are not finite"
    states.square().mean().backward()
    yield from _without_gradient(model, parts)
    with torch.no_grad():
        if not torch.equal(model(source, target), states):
            yield "gives other states when asked again: nothing may be random when evaluating"
        if not torch.equal(_in_training(model, 1), _in_training(model, 2)):
            yield "draws from torch's own generator while training, so no run could be resumed; see `sight.weights`"
        by_sight = any(isinstance(part, (Mechanism, PositionalEncoding)) for part in parts)
        hint = "`sight.allowed` says what may be seen" if by_sight else "each token must be treated alone"
        of_other = model.eval()(source, target.flip(0))
        if not _near(of_other[:, :1], states[:, :1]):
            yield f"lets a token see those after it; {hint}"
        if not _near(model(source[1:, :3], target[1:]), states[1:]):
            yield f"lets padding change a sentence; {hint}"
        cache = model.start(source, 2)
        hypotheses = torch.stack([target, target.flip(0)], dim=1)  # (B, 2, T)
        steps = [model.step(tokens, cache) for tokens in hypotheses.unbind(2)]
        if not _near(torch.stack(steps, dim=2), torch.stack([states, of_other], dim=1)):
            places = "places are in `sight.queries`, `sight.keys`" if by_sight else "each token must be treated alone"
            if any(isinstance(part, Mechanism) and part.takes_seen for part in parts):
                places += "; `takes_seen` promises that what `sight.allowed` leaves out is left out"
            yield f"gives other states token by token than at once; {places}"


def _is_silent(part: PositionalEncoding) -> bool:
    return all(getattr(type(part), hook) is getattr(PositionalEncoding, hook) for hook in _HOOKS)


def _without_gradient(model: Transformer, parts: list[nn.Module]) -> Iterator[str]:
    """What would never learn: a parameter of a part, or the values that attention is given."""
    for part in parts:
        for name, parameter in part.named_parameters():
            if parameter.grad is None:
                yield f"its parameter {name} has no gradient, so it would never learn"
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention) and layer.W_V.weight.grad is None:
            yield "what it gives has no gradient with respect to V, so nothing before it would learn"


def _in_training(model: Transformer, seed: int) -> Tensor:
    """States with the model's own dropout in one state, and torch's own generator in another one each time."""
    model.train().random.manual_seed(1)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        states: Tensor = model(torch.tensor(_SOURCE), torch.tensor(_TARGET))
    return states


def _near(x: Tensor, y: Tensor) -> bool:
    return torch.allclose(x, y, atol=_CLOSE)
