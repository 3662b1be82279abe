"""Loggers: copy the metrics of runs to TensorBoard, MLflow or Weights & Biases, without effect on
the training.
"""

from ablate.loggers.dashboards import LOGGERS, Start, select_loggers
from ablate.loggers.mirror import Mirror

__all__ = ["LOGGERS", "Mirror", "Start", "select_loggers"]
