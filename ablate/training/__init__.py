"""Training: the paper's recipe, interruptible at every step."""

from ablate.training.loop import Diverged, Trained, Trainer

__all__ = ["Diverged", "Trained", "Trainer"]
