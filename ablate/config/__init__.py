"""Settings of a run (model, training, decoding, data), their validation, and the run's identity."""

from ablate.config.data import DataConfig
from ablate.config.decoding import DecodingConfig
from ablate.config.identity import decoding_id, run_id
from ablate.config.model import ModelConfig
from ablate.config.presets import PRESETS
from ablate.config.resolve import field_names, resolve_row, standard_name
from ablate.config.row import RowConfig
from ablate.config.training import TrainingConfig
from ablate.config.translation_data import TranslationData

__all__ = [
    "PRESETS",
    "DataConfig",
    "DecodingConfig",
    "ModelConfig",
    "RowConfig",
    "TrainingConfig",
    "TranslationData",
    "decoding_id",
    "field_names",
    "resolve_row",
    "run_id",
    "standard_name",
]
