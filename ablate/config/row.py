"""The configuration of a row: the fields of its model, training, decoding and data."""

from __future__ import annotations

from pydantic import model_validator

from ablate.config.decoding import DecodingConfig
from ablate.config.language_data import ContextSettings, MaskSettings
from ablate.config.model import ModelConfig
from ablate.config.optimizers import OPTIMIZERS
from ablate.config.training import TrainingConfig
from ablate.errors import Fault, Invalid
from ablate.fields import PositiveShare, Section, TaskSettings, VocabularySize


class SubsetSettings(Section):
    """Settings of the size of the vocabulary, and of the share of the training data."""

    vocab_size: VocabularySize | None = None
    """size of the vocabulary; unset: data.vocab_size"""
    train_fraction: PositiveShare = 1.0
    """share of the training records; a smaller share is a subset of a larger one"""


class RowDataConfig(MaskSettings, ContextSettings, SubsetSettings):
    """Data settings that a row may change; all other data settings belong to the study."""


class RowConfig(ModelConfig, TrainingConfig, DecodingConfig, RowDataConfig):
    """Every field that a row may set, resolved, in one flat configuration."""

    @model_validator(mode="after")
    def _rates_follow_the_width(self) -> RowConfig:
        name = self.parametrization
        if name != "standard" and OPTIMIZERS[self.optimizer].may_grow:
            raise Invalid(
                Fault(
                    f"parametrization={name} has rules for optimizers whose updates do not grow "
                    f"with the gradient, and not for optimizer={self.optimizer}",
                    ("parametrization", "optimizer"),
                )
            )
        if name != "standard" and self.learning_rate is None:
            raise Invalid(
                Fault(
                    f"parametrization={name} needs a rate that does not depend on the width, and "
                    "the paper's rate falls with d_model",
                    ("parametrization", "learning_rate"),
                    remedy="set learning_rate",
                )
            )
        return self


# Fields that only the tasks use that name their class.
TASK_FIELDS = tuple(
    name
    for section in RowConfig.__mro__
    if TaskSettings in section.__bases__
    for name in section.model_fields  # type: ignore[attr-defined]
)
