"""Fields of decoding (section 6.1 of the paper), which are not part of a run's id."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ablate.config.language_data import (
    EvaluationContextSettings,
    EvaluationMaskSettings,
    GenerationSettings,
    ProbeSettings,
)
from ablate.config.parsing_data import TreeSearchSettings
from ablate.config.synthetic_data import EvaluationSizeSettings
from ablate.fields import CHOSEN_ON_DEV, Aliases, Facts, Section, TaskSettings

LengthPenalty = Literal["gnmt", "length"]


class SearchSettings(TaskSettings):
    """Beam search. The defaults are the values for the paper's Table 3."""

    beam: Annotated[int, CHOSEN_ON_DEV, Aliases("beam_size", "num_beams")] = Field(4, ge=1, le=1024)
    """beam size; 1 is greedy search"""
    alpha: Annotated[float, CHOSEN_ON_DEV] = Field(0.6, ge=0.0, le=10.0)
    """exponent of the length penalty, by which the log-probability of a translation Y is divided"""
    length_penalty: Annotated[LengthPenalty, CHOSEN_ON_DEV] = "gnmt"
    """form of the length penalty: ((5+|Y|)/6)^alpha (Wu et al., 2016), or |Y|^alpha as in fairseq
    and transformers; the end mark counts"""
    max_extra_length: Annotated[int, CHOSEN_ON_DEV] = Field(50, ge=0, le=10_000)
    """maximum number of tokens by which a translation exceeds its source"""
    early_stopping: Annotated[bool, Facts(chosen_on_dev=True, introduced=True)] = False
    """stop a search when the number of finished hypotheses reaches the beam size; false: only when
    no unfinished hypothesis can become better"""


class AveragingSettings(Section):
    """The choice of the weights for predictions."""

    average_checkpoints: Annotated[int, CHOSEN_ON_DEV] = Field(1, ge=1, le=1000)
    """number of last checkpoints whose weights are averaged"""


# The fields of the last base come first, in tables too.
class DecodingConfig(
    ProbeSettings,
    EvaluationSizeSettings,
    EvaluationMaskSettings,
    GenerationSettings,
    EvaluationContextSettings,
    AveragingSettings,
    TreeSearchSettings,
    SearchSettings,
):
    """Settings of prediction and scoring. A task uses only the classes that it lists."""
