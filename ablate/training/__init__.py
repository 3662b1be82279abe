"""Training: the paper's recipe, interruptible at every step."""

from ablate.training.loop import Trainer
from ablate.training.position import Diverged, Trained

__all__ = ["Diverged", "Trained", "Trainer"]
