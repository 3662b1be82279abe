"""Settings of a run (model, training, decoding, data), their validation, and the run's identity."""

from ablate.config.data import DataConfig
from ablate.config.decoding import DecodingConfig
from ablate.config.model import ModelConfig
from ablate.config.resolve import resolve_row
from ablate.config.row import RowConfig
from ablate.config.training import TrainingConfig

__all__ = [
    "DataConfig",
    "DecodingConfig",
    "ModelConfig",
    "RowConfig",
    "TrainingConfig",
    "resolve_row",
]
