"""Other people's dashboards: each logger mirrors the runs' own logs, and can neither change nor stop them."""

from ablate.loggers.choice import LOGGERS, chosen
from ablate.loggers.mirror import Mirror

__all__ = ["LOGGERS", "Mirror", "chosen"]
