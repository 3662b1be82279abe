"""The learning rate (section 5.3, eq. 3)."""

from __future__ import annotations


def learning_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5); step counts from 1."""
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
