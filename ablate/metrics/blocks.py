"""Scores of a text in blocks: bits per byte, and loss and accuracy of masked tokens.

A block is the same text for every vocabulary and every context. A token that reaches over the end
of a block belongs to the block in which it begins; the end mark of a document belongs to the block
of the character before it. A block in which no token is masked counts for nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.corpus import TokenSequences
from ablate.data.tokenizer import Tokenizer
from ablate.kernels.cross_entropy import soft_cap
from ablate.metrics.evaluation import score_batches
from ablate.metrics.resampling import Statistics
from ablate.model import Transformer
from ablate.stats.metrics import BITS_PER_BYTE, MASKED_ACCURACY, MASKED_LOSS

BLOCK_BYTES = 1024
_ROWS = 1024  # tokens whose logits are in memory at once


@dataclass(frozen=True)
class Blocks:
    """The blocks of a text.

    of_token: the block of each token.
    tokens: of each block, with end marks.
    bytes: of the tokens of each block.
    """

    of_token: NDArray[np.int64]
    tokens: NDArray[np.int64]
    bytes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bytes)


def blocks_of(sequences: TokenSequences, tokenizer: Tokenizer) -> Blocks:
    """Divide a text into blocks of BLOCK_BYTES bytes; the last one may be shorter."""
    lengths = tokenizer.byte_lengths()[np.asarray(sequences.ids)]
    before = np.cumsum(lengths) - lengths
    # A mark has no byte, so it follows the last one.
    of_token = (before - (lengths == 0)).clip(min=0) // BLOCK_BYTES
    of_token = np.unique(of_token, return_inverse=True)[1]  # a block may lie within a token
    sizes = (np.bincount(of_token), np.bincount(of_token, weights=lengths).astype(np.int64))
    return Blocks(of_token, *sizes)


@dataclass(frozen=True)
class TokenScores:
    """Scores of the predicted tokens of a text, in the order of the text.

    places: of each token in the text.
    nats: negative log-likelihood of each token.
    correct: whether each token is the most likely one.
    """

    places: NDArray[np.int64]
    nats: NDArray[np.float64]
    correct: NDArray[np.bool_]


def score_text(
    model: Transformer,
    batches: Callable[[int], Iterable[tuple[NDArray[np.int64], Any]]],
    output_terms: Callable[[Transformer, Any], tuple[Tensor, Tensor, Tensor]],
    device: torch.device,
    after_batch: Callable[[], None],
) -> TokenScores:
    """Score the tokens that count in all batches; the model is put into evaluation mode."""
    model.eval()

    def score(places_and_batch: tuple[NDArray[np.int64], Any]) -> NDArray[np.float64]:
        places, batch = places_and_batch
        terms = output_terms(model, batch.to(device))
        scores = score_tokens(*terms, model.config.logit_cap).cpu().numpy()
        after_batch()
        return np.vstack([places, scores])

    places, nats, correct = np.concatenate(score_batches(batches, score, device), axis=1)
    order = np.argsort(places, kind="stable")
    return TokenScores(places[order].astype(np.int64), nats[order], correct[order] > 0)


def score_tokens(states: Tensor, weight: Tensor, targets: Tensor, cap: float | None) -> Tensor:
    """(2, n) in fp64: negative log-likelihood in nats, and whether a token is the likeliest.

    Args:
        states: (n, d_model).
        weight: output matrix (V, d_model).
        targets: token ids (n).
        cap: soft cap of the logits.
    """
    parts = []
    for start in range(0, len(targets), _ROWS):  # logits are the largest tensor
        rows = slice(start, start + _ROWS)
        logits = soft_cap(F.linear(states[rows], weight).float(), cap)  # (m, V)
        nats = F.cross_entropy(logits, targets[rows], reduction="none").double()
        parts.append(torch.stack([nats, (logits.argmax(1) == targets[rows]).double()]))
    return torch.cat(parts, dim=1)


# Predictions: a line for each block, with all that its scores and their signature follow from


def text_lines(scores: TokenScores, blocks: Blocks, evaluation: str) -> list[str]:
    """The lines of a text of which every token is predicted."""
    assert np.array_equal(scores.places, np.arange(len(blocks.of_token))), "a token is missing"
    nats = np.bincount(blocks.of_token, weights=scores.nats)
    counts = {"tokens": blocks.tokens, "bytes": blocks.bytes}
    return score_lines(nats, counts, evaluation.replace(":", "=").replace("|", " "))


def masked_lines(scores: TokenScores, blocks: Blocks, evaluation: str) -> list[str]:
    """The lines of a text of which some tokens are predicted; arguments as for `text_lines`."""
    block = blocks.of_token[scores.places]
    count = len(blocks)
    # minlength: the last blocks may have no masked token.
    nats = np.bincount(block, weights=scores.nats, minlength=count)
    correct = np.bincount(block[scores.correct], minlength=count)
    counts = {"correct": correct, "masked": np.bincount(block, minlength=count)}
    return score_lines(nats, counts, evaluation)


def score_lines(
    nats: NDArray[Any], counts: Mapping[str, NDArray[np.int64]], evaluation: str
) -> list[str]:
    """A line for each block, or for each item."""
    lines = []
    for block, total in enumerate(nats):
        numbers = " ".join(f"{name}={values[block]}" for name, values in counts.items())
        lines.append(f"nats={total:.6f} {numbers} {evaluation}")
    return lines


@dataclass(frozen=True)
class _Score:
    """A score of a block, or of blocks that are added.

    line: of a block; its groups are the statistics, and the evaluation.
    unit: the last statistic, by which the others are divided.
    value: from the summed statistics.
    """

    line: re.Pattern[str]
    unit: str
    value: Callable[[NDArray[np.float64]], float]


def mean_nats(sums: NDArray[np.float64]) -> float:
    """Mean negative log-likelihood from (nats, correct, tokens)."""
    return float(sums[0] / max(1.0, float(sums[2])))


def accuracy(sums: NDArray[np.float64]) -> float:
    """Percentage of correct tokens from (nats, correct, tokens)."""
    return float(100 * sums[1] / max(1.0, float(sums[2])))


_TEXT_LINE = re.compile(r"nats=(\S+) tokens=\d+ bytes=(\d+) (ctx=\d+ stride=\d+)")
_MASKED_LINE = re.compile(r"nats=(\S+) correct=(\d+) masked=(\d+) (ctx:\S+)")
_SCORES = {
    BITS_PER_BYTE.name: _Score(
        _TEXT_LINE, "bytes", lambda sums: sums[0] / (math.log(2) * max(1.0, sums[-1]))
    ),
    MASKED_LOSS.name: _Score(_MASKED_LINE, "masked", mean_nats),
    MASKED_ACCURACY.name: _Score(_MASKED_LINE, "masked", accuracy),
}


def block_statistics(metric: str, lines: Sequence[str], split: str) -> Statistics:
    """The statistics of each block of a text, from its line; where no token counts, it scores 0."""
    score = _SCORES[metric]
    values, evaluation = parse_lines(lines, score.line)
    evaluation = evaluation.replace("=", ":").replace(" ", "|")
    signature = f"{evaluation}|{score.unit}:{int(values[:, -1].sum())}|split:{split}"
    return Statistics(values, score.value, signature)


def parse_lines(lines: Sequence[str], pattern: re.Pattern[str]) -> tuple[NDArray[np.float64], str]:
    """The statistics of each line, and the evaluation that all of them name."""
    statistics = []
    evaluation = ""
    for line in lines:
        match = pattern.fullmatch(line)
        assert match is not None, line
        *numbers, evaluation = match.groups()
        statistics.append([float(number) for number in numbers])
    return np.array(statistics), evaluation
