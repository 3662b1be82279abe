"""A user's own term of the training loss."""

from __future__ import annotations

from pathlib import Path

from ablate.config import RowConfig
from ablate.config.plugins import load_function, parse_reference
from ablate.kernels.cross_entropy import LossTerm


def loss_term_of(config: RowConfig, sources: Path) -> LossTerm | None:
    """The function that a row names, whose source is in `sources`; None without one."""
    plugin = parse_reference(config.loss_term)
    return None if plugin is None else load_function(plugin, sources)
