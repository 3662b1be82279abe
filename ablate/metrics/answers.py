"""Loss and accuracy of the answers of generated items, item by item, so that models can be compared
on the same items.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ablate.metrics import resampling
from ablate.metrics.blocks import TokenScores, accuracy, mean_nats
from ablate.store.records import Measurement

_LINE = re.compile(r"nats=(\S+) correct=(\d+) answers=(\d+) (\S+)")


def lines_of(scores: TokenScores, evaluation: str) -> list[str]:
    """One line for each item, with all that its scores and their signature follow from.

    Args:
        scores: of the answers; `places` are the numbers of their items.
        evaluation: the items, as the signature names them.
    """
    nats = np.bincount(scores.places, scores.nats)
    correct, answers = np.bincount(scores.places, scores.correct), np.bincount(scores.places)
    return [
        f"nats={total:.6f} correct={right:.0f} answers={count} {evaluation}"
        for total, right, count in zip(nats, correct, answers, strict=True)
    ]


def measure(metric: str, lines: Sequence[str]) -> Measurement:
    """Score a test set from the lines of its items, and resampled test sets."""
    statistics, evaluation = _parse(lines)
    signature = f"{evaluation}|items:{len(lines)}|answers:{int(statistics[:, 2].sum())}"
    return resampling.measure(statistics, _SCORES[metric], signature)


def item_scores(metric: str, lines: Sequence[str]) -> list[float]:
    """Scores of each item."""
    return [_SCORES[metric](statistics) for statistics in _parse(lines)[0]]


def items_right(sums: NDArray[np.float64]) -> float:
    """Percentage of items with every answer right, from (nats, correct, answers, right, items)."""
    return float(100 * sums[3] / sums[4])


_SCORES = {"accuracy": accuracy, "items_right": items_right, "answer_loss": mean_nats}


def _parse(lines: Sequence[str]) -> tuple[NDArray[np.float64], str]:
    """The statistics (nats, correct, answers, all right, 1) of each line, and the evaluation that
    they name.
    """
    rows, evaluation = [], ""
    for line in lines:
        match = _LINE.fullmatch(line)
        assert match is not None, "every line is one of `lines_of`"
        nats, correct, answers = (float(number) for number in match.groups()[:3])
        rows.append((nats, correct, answers, float(correct == answers), 1.0))
        evaluation = match[4]
    return np.array(rows), evaluation
