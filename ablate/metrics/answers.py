"""Loss and accuracy of the answers of generated items."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ablate.metrics.blocks import TokenScores, accuracy, mean_nats, parse_lines, score_lines
from ablate.metrics.resampling import Statistics

_LINE = re.compile(r"nats=(\S+) correct=(\d+) answers=(\d+) (\S+)")


def answer_lines(scores: TokenScores, evaluation: str) -> list[str]:
    """A line for each item, with the statistics from which scores are computed.

    Args:
        scores: scores of the answer tokens; `indices` are the indices of their items.
        evaluation: name of the items in signatures.
    """
    nats = np.bincount(scores.indices, scores.nats)
    answers = np.bincount(scores.indices)
    correct = np.bincount(scores.indices[scores.correct], minlength=len(answers))
    return score_lines(nats, {"correct": correct, "answers": answers}, evaluation)


def answer_statistics(metric: str, lines: Sequence[str]) -> Statistics:
    """The statistics of each item from its line: (nats, correct, answers, all correct, 1)."""
    counts, evaluation = parse_lines(lines, _LINE)
    all_right = counts[:, 1] == counts[:, 2]
    values = np.column_stack([counts, all_right, np.ones(len(counts))])
    signature = f"{evaluation}|items:{len(lines)}|answers:{int(values[:, 2].sum())}"
    return Statistics(values, _SCORES[metric], signature)


def items_right(sums: NDArray[np.float64]) -> float:
    """Percentage of items with only correct answers, from (nats, correct, answers, all correct,
    items).
    """
    return float(100 * sums[3] / sums[4])


_SCORES = {"accuracy": accuracy, "items_right": items_right, "answer_loss": mean_nats}
