"""Loss and accuracy of the answers of generated items, item by item."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ablate.metrics.blocks import TokenScores, accuracy, mean_nats, parse_lines, score_lines
from ablate.metrics.resampling import Statistics

_LINE = re.compile(r"nats=(\S+) correct=(\d+) answers=(\d+) (\S+)")


def lines_of(scores: TokenScores, evaluation: str) -> list[str]:
    """One line for each item, with all that its scores and their signature follow from.

    Args:
        scores: of the answers; `places` are the numbers of their items.
        evaluation: the items, as the signature names them.
    """
    nats = np.bincount(scores.places, scores.nats)
    answers = np.bincount(scores.places)
    correct = np.bincount(scores.places[scores.correct], minlength=len(answers))
    return score_lines(nats, {"correct": correct, "answers": answers}, evaluation)


def answer_statistics(metric: str, lines: Sequence[str]) -> Statistics:
    """The statistics (nats, correct, answers, all right, 1) of each item, from its line."""
    counts, evaluation = parse_lines(lines, _LINE)
    all_right = counts[:, 1] == counts[:, 2]
    values = np.column_stack([counts, all_right, np.ones(len(counts))])
    signature = f"{evaluation}|items:{len(lines)}|answers:{int(values[:, 2].sum())}"
    return Statistics(values, _SCORES[metric], signature)


def items_right(sums: NDArray[np.float64]) -> float:
    """Percentage of items with every answer right, from (nats, correct, answers, right, items)."""
    return float(100 * sums[3] / sums[4])


_SCORES = {"accuracy": accuracy, "items_right": items_right, "answer_loss": mean_nats}
