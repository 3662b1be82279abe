"""Training: the paper's recipe, which can stop after every step and resume exactly."""

from ablate.training.context import (
    Diverged,
    RunContext,
    StepReport,
    TrainingOutcome,
    TrainingProgress,
)
from ablate.training.trainer import Trainer

__all__ = ["Diverged", "RunContext", "StepReport", "Trainer", "TrainingOutcome", "TrainingProgress"]
