"""Which loggers there are, and what each needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from ablate.errors import UsageError, did_you_mean, listed
from ablate.loggers.interface import Logger

# As --log has it -> (our module, its class, the package that must be there).
LOGGERS = {
    "tensorboard": ("ablate.loggers.tensorboard", "TensorBoard", "tensorboard"),
    "mlflow": ("ablate.loggers.mlflow", "MLflow", "mlflow"),
    "wandb": ("ablate.loggers.wandb", "WeightsAndBiases", "wandb"),
}


def chosen(names: Iterable[str]) -> dict[str, Callable[[Path], Logger]]:
    """What makes each logger for a study's folder; its package is loaded only then.

    Raises:
        UsageError: there is no such logger, or its package is not installed.
    """
    made: dict[str, Callable[[Path], Logger]] = {}
    for name in names:
        if name not in LOGGERS:
            raise UsageError(f'--log: "{name}" is not {listed(LOGGERS)}{did_you_mean(name, LOGGERS)}')
        module, kind, package = LOGGERS[name]
        if find_spec(package) is None:
            raise UsageError(f"--log {name}: is not installed; pip install 'ablate-transformer[{name}]'")
        made[name] = _maker(module, kind)
    return made


def _maker(module: str, kind: str) -> Callable[[Path], Logger]:
    return lambda folder: cast(Logger, getattr(import_module(module), kind)(folder))
