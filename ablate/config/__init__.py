"""Settings of a run (model, training, decoding, data), their validation, and the run's identity."""

from typing import TYPE_CHECKING, Any

from ablate.config.data import DataConfig
from ablate.config.decoding import DecodingConfig
from ablate.config.model import ModelConfig
from ablate.config.row import RowConfig
from ablate.config.training import TrainingConfig

if TYPE_CHECKING:
    from ablate.config.resolve import resolve_row

__all__ = [
    "DataConfig",
    "DecodingConfig",
    "ModelConfig",
    "RowConfig",
    "TrainingConfig",
    "resolve_row",
]


def __getattr__(name: str) -> Any:
    """Import `resolve_row` when it is asked for: it reads presets, which `judge` does not need."""
    if name != "resolve_row":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ablate.config.resolve import resolve_row

    return resolve_row
