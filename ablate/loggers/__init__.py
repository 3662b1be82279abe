"""Loggers: copy the metrics of runs to TensorBoard, MLflow or Weights & Biases, without effect on
the training.
"""

from ablate.loggers.base import LOGGERS, LoggedRun, Logger, Point, RunLogger, select_loggers
from ablate.loggers.mirror import Mirror

__all__ = ["LOGGERS", "LoggedRun", "Logger", "Mirror", "Point", "RunLogger", "select_loggers"]
