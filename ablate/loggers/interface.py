"""What a logger is: a place that takes the points of a run, in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Point:
    """A line of a run's metrics log: after `step` steps, values by name (loss and lr, or dev_perplexity)."""

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class LoggedRun:
    """A run as a logger knows it.

    name: tells people which it is.
    settings: what it is the training of.
    decodings: the ways of decoding whose scores make its record whole, by identity.
    """

    id: str
    study: str
    name: str
    row: str
    seed: int
    settings: Mapping[str, Any]
    decodings: tuple[str, ...]


class Sink(Protocol):
    """Takes one run's points."""

    @property
    def known(self) -> int:
        """How many of the run's points are there already, of an earlier launch."""

    def add(self, points: Sequence[Point]) -> None:
        """Take further points."""

    def close(self, scores: Mapping[str, float] | None) -> None:
        """No more points come; `scores` are the finished run's, None while it is not finished."""


class Logger(Protocol):
    """A kind of dashboard."""

    def open(self, run: LoggedRun) -> Sink | None:
        """Where the run's points go; None where all of them are there already."""
