"""Training: the paper's recipe, which can stop after every step and resume exactly."""

from ablate.training.hooks import RunHooks, StepReport
from ablate.training.progress import Diverged, TrainingOutcome, TrainingProgress
from ablate.training.trainer import Trainer

__all__ = ["Diverged", "RunHooks", "StepReport", "Trainer", "TrainingOutcome", "TrainingProgress"]
