"""Holm's correction for many tests at once (Holm, 1979): the chance of one false alarm in all stays below the level."""

from __future__ import annotations

from collections.abc import Sequence


def holm(ps: Sequence[float]) -> list[float]:
    """Corrected p values, in the order of the given ones."""
    corrected = [0.0] * len(ps)
    highest = 0.0
    for factor, index in zip(_factors(len(ps)), _smallest_first(ps), strict=True):
        highest = max(highest, min(1.0, factor * ps[index]))
        corrected[index] = highest
    return corrected


def factors(ps: Sequence[float]) -> list[int]:
    """What each p value is multiplied by: the number of tests for the smallest, one less for the next."""
    found = [0] * len(ps)
    for factor, index in zip(_factors(len(ps)), _smallest_first(ps), strict=True):
        found[index] = factor
    return found


def _smallest_first(ps: Sequence[float]) -> list[int]:
    return sorted(range(len(ps)), key=ps.__getitem__)


def _factors(count: int) -> range:
    return range(count, 0, -1)
