"""Loss and accuracy of masked tokens, in blocks of the text, so that models can be compared block
by block.

The blocks are those of bits per byte. A block in which no token is masked counts for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.config.metrics import MASKED_ACCURACY, MASKED_LOSS
from ablate.data.contexts import ContextBatch
from ablate.metrics import resampling
from ablate.metrics.bits_per_byte import Blocks, logits_in_parts
from ablate.metrics.evaluation import score_batches
from ablate.store.records import Measurement

_LINE = re.compile(r"nats=(\S+) correct=(\d+) masked=(\d+) (ctx:\S+)")


@dataclass(frozen=True)
class TokenScores:
    """Scores of the masked tokens of a text.

    places: of each token in the text.
    nats: negative log-likelihood of each token.
    correct: whether each token is the most likely one.
    """

    places: NDArray[np.int64]
    nats: NDArray[np.float64]
    correct: NDArray[np.bool_]


def score_tokens(
    states: Tensor, weight: Tensor, targets: Tensor, cap: float | None = None
) -> Tensor:
    """Negative log-likelihood in nats, and whether the token is the most likely one: (2, n) in
    fp64.

    Args:
        states: (n, d_model).
        weight: output matrix (V, d_model).
        targets: token ids (n).
        cap: soft cap of the logits.
    """
    parts = []
    for logits, some in logits_in_parts(states, weight, targets, cap):
        nats = torch.nn.functional.cross_entropy(logits, some, reduction="none")
        parts.append(torch.stack([nats.double(), (logits.argmax(1) == some).double()]))
    return torch.cat(parts, dim=1)


def collect_scores(
    batches: Callable[[int], Iterable[tuple[NDArray[np.int64], ContextBatch]]],
    scores_of: Callable[[ContextBatch], Tensor],
    device: torch.device,
    after_batch: Callable[[], None],
) -> TokenScores:
    """Score the masked tokens of all batches.

    Args:
        batches: (place of each masked token, batch); as for `score_batches`.
        scores_of: scores of a batch, as from `score_tokens`.
        device: of the model.
        after_batch: called after each batch.
    """

    def score(places_and_batch: tuple[NDArray[np.int64], ContextBatch]) -> NDArray[np.float64]:
        places, batch = places_and_batch
        scores = np.vstack([places, scores_of(batch.to(device)).cpu().numpy()])
        after_batch()
        return scores

    places, nats, correct = np.concatenate(score_batches(batches, score, device), axis=1)
    return TokenScores(places.astype(np.int64), nats, correct > 0)


def lines_of(scores: TokenScores, blocks: Blocks, evaluation: str) -> list[str]:
    """One line for each block, with all that its scores and their signature follow from.

    Args:
        scores: of the masked tokens.
        blocks: of the text.
        evaluation: the masks, as the signature names them.
    """
    block, count = blocks.of_token[scores.places], len(blocks)
    # minlength: the last blocks may have no masked token.
    nats = np.bincount(block, weights=scores.nats, minlength=count)
    correct = np.bincount(block[scores.correct], minlength=count)
    masked = np.bincount(block, minlength=count)
    return [
        f"nats={total:.6f} correct={right} masked={number} {evaluation}"
        for total, right, number in zip(nats, correct, masked, strict=True)
    ]


def measure(metric: str, lines: Sequence[str], split: str) -> Measurement:
    """Score a text from the lines of its blocks, and resampled texts.

    Args:
        metric: name of a metric.
        lines: from `lines_of`.
        split: name of the text, for the signature.
    """
    statistics, evaluation = _parse(lines)
    signature = f"{evaluation}|masked:{int(statistics[:, 2].sum())}|split:{split}"
    return resampling.measure(statistics, _SCORES[metric], signature)


def block_scores(metric: str, lines: Sequence[str]) -> list[float]:
    """Scores of each block; 0 where no token is masked."""
    return [_SCORES[metric](one) for one in _parse(lines)[0]]


def mean_nats(sums: NDArray[np.float64]) -> float:
    """Mean negative log-likelihood from (nats, correct, masked)."""
    return float(sums[0] / max(1.0, float(sums[2])))


def accuracy(sums: NDArray[np.float64]) -> float:
    """Percentage of correct tokens from (nats, correct, masked)."""
    return float(100 * sums[1] / max(1.0, float(sums[2])))


_SCORES = {MASKED_LOSS.name: mean_nats, MASKED_ACCURACY.name: accuracy}


def _parse(lines: Sequence[str]) -> tuple[NDArray[np.float64], str]:
    """The statistics (nats, correct, masked) of each line, and the evaluation that all of them
    name.
    """
    matches = [_LINE.fullmatch(line) for line in lines]
    found = [match.groups() for match in matches if match is not None]
    assert len(found) == len(lines), "every line is one of `lines_of`"
    return np.array([[float(number) for number in one[:3]] for one in found]), found[0][3]
