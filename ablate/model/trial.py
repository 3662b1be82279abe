"""Try a user's own variants in a small model, before anything is trained with them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ablate.config import ModelConfig
from ablate.config.own import references
from ablate.errors import AblateError, StudyError
from ablate.model.build import build
from ablate.model.transformer import Transformer

_SOURCE = ((4, 5, 6, 7, 3), (8, 9, 3, 0, 0))
_TARGET = ((2, 5, 9, 6), (2, 7, 4, 10))
_V = 11
_PLACES = 16  # more than both sides have together
_CLOSE = 1e-3


def try_out(config: ModelConfig, sources: Path) -> None:
    """Pass two short sentences through one layer of the model.

    Raises:
        StudyError: a variant fails, returns what it should not, or lets a token see those after it.
    """
    what = ", ".join(f"{own.module}:{own.name}" for own in references(config))
    small = {"n_layers": 1, "encoder_layers": None, "decoder_layers": None, "max_positions": _PLACES}
    shallow = config.model_copy(update=small)
    try:
        _try(build(shallow, _V, seed=1, sources=sources).eval(), what)
    except AblateError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise StudyError(f"{what}: {type(error).__name__}: {lines[0]}") from None


def _try(model: Transformer, what: str) -> None:
    source, target = torch.tensor(_SOURCE), torch.tensor(_TARGET)
    states = model(source, target)
    expected = (*target.shape, model.config.d_model)
    if states.shape != expected or not bool(states.isfinite().all()):
        raise StudyError(f"{what}: gives states of shape {tuple(states.shape)}, or not finite; expected {expected}")
    states.square().mean().backward()
    with torch.no_grad():
        if not _near(model(source, target.flip(0))[:, :1], states[:, :1]):
            raise StudyError(f"{what}: lets a token see those after it; `sight.allowed` says what may be seen")
        if not _near(model(source[1:, :3], target[1:]), states[1:]):
            raise StudyError(f"{what}: lets padding change a sentence; `sight.allowed` says what may be seen")
        cache = model.start(source, 1)
        steps = [model.step(target[:, t : t + 1], cache) for t in range(target.shape[1])]
        if not _near(torch.cat(steps, dim=1), states):
            raise StudyError(
                f"{what}: gives other states token by token than at once; places are in `sight.queries`, `sight.keys`"
            )


def _near(x: Tensor, y: Tensor) -> bool:
    return torch.allclose(x, y, atol=_CLOSE)
