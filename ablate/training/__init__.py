"""Training: the paper's recipe, interruptible at every step."""

from ablate.training.loop import Trainer
from ablate.training.progress import Diverged, Trained

__all__ = ["Diverged", "Trained", "Trainer"]
