"""Scores of tokens: bits per byte of a text, loss and accuracy of masked tokens and of answers.

Predictions are lines: one for each block of a text or each generated item, with the statistics that
scores are computed from.

A block has the same text with every vocabulary and every context length, so that rows can be
compared block by block. A token belongs to the block in which it begins; the end mark of a document
belongs to the block of the character before it. A block without masked tokens has no weight.
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
from ablate.stats.metrics import ACCURACY, BITS_PER_BYTE, ITEMS_RIGHT, MASKED_ACCURACY, MASKED_LOSS

BLOCK_BYTES = 1024
_ROWS = 1024  # tokens whose logits are in memory at once


@dataclass(frozen=True)
class Blocks:
    """The blocks of a text.

    token_blocks: index of the block of each token.
    tokens: number of tokens of each block, with end marks.
    bytes: number of bytes of each block's tokens.
    """

    token_blocks: NDArray[np.int64]
    tokens: NDArray[np.int64]
    bytes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bytes)


def divide_into_blocks(sequences: TokenSequences, tokenizer: Tokenizer) -> Blocks:
    """Divide a text into blocks of BLOCK_BYTES bytes; the last block may be shorter."""
    lengths = tokenizer.byte_lengths()[np.asarray(sequences.ids)]
    starts = np.cumsum(lengths) - lengths
    # A mark has no bytes; it belongs to the byte before it.
    token_blocks = (starts - (lengths == 0)).clip(min=0) // BLOCK_BYTES
    # Renumber the blocks, because no token begins in a block that lies within a token.
    token_blocks = np.unique(token_blocks, return_inverse=True)[1]
    tokens = np.bincount(token_blocks)
    sizes = np.bincount(token_blocks, weights=lengths).astype(np.int64)
    return Blocks(token_blocks, tokens, sizes)


@dataclass(frozen=True)
class TokenScores:
    """Scores of the predicted tokens of a text, in the order of the text.

    indices: index of each token in the text.
    nats: negative log-likelihood of each token.
    correct: whether each token is the most likely one.
    """

    indices: NDArray[np.int64]
    nats: NDArray[np.float64]
    correct: NDArray[np.bool_]


def score_text(
    model: Transformer,
    batches: Callable[[int], Iterable[tuple[NDArray[np.int64], Any]]],
    output_terms: Callable[[Transformer, Any], tuple[Tensor, Tensor, Tensor]],
    device: torch.device,
    after_batch: Callable[[], None],
) -> TokenScores:
    """Score the target tokens of all batches.

    Args:
        model: put into eval mode.
        batches: see `score_batches`; each batch comes after the indices of its target tokens.
        output_terms: `Task.output_terms` of the task of these batches.
        device: device of the model.
        after_batch: called after each batch of this rank.
    """
    model.eval()

    def score(indices_and_batch: tuple[NDArray[np.int64], Any]) -> NDArray[np.float64]:
        indices, batch = indices_and_batch
        terms = output_terms(model, batch.to(device))
        scores = score_tokens(*terms, model.config.logit_cap).cpu().numpy()
        after_batch()
        return np.vstack([indices, scores])

    indices, nats, correct = np.concatenate(score_batches(batches, score, device), axis=1)
    order = np.argsort(indices, kind="stable")
    return TokenScores(indices[order].astype(np.int64), nats[order], correct[order] > 0)


def score_tokens(states: Tensor, weight: Tensor, targets: Tensor, cap: float | None) -> Tensor:
    """Score tokens by their decoder states.

    Args:
        states: (n, d_model).
        weight: output matrix (V, d_model).
        targets: token ids (n,).
        cap: soft cap of the logits; None for none.

    Returns:
        (2, n) in fp64: negative log-likelihoods in nats, and 1 where the token is the most likely.
    """
    chunks = []
    for start in range(0, len(targets), _ROWS):  # logits are the largest tensor
        rows = slice(start, start + _ROWS)
        logits = soft_cap(F.linear(states[rows], weight).float(), cap)  # (m, V)
        nats = F.cross_entropy(logits, targets[rows], reduction="none").double()
        chunks.append(torch.stack([nats, (logits.argmax(1) == targets[rows]).double()]))
    return torch.cat(chunks, dim=1)


# Lines


def text_lines(scores: TokenScores, blocks: Blocks, evaluation: str) -> list[str]:
    """The lines of a text in which every token is predicted."""
    n_tokens = len(blocks.token_blocks)
    assert np.array_equal(scores.indices, np.arange(n_tokens)), "a token is missing"
    nats = np.bincount(blocks.token_blocks, weights=scores.nats)
    counts = {"tokens": blocks.tokens, "bytes": blocks.bytes}
    return _lines(nats, counts, evaluation.replace(":", "=").replace("|", " "))


def masked_lines(scores: TokenScores, blocks: Blocks, evaluation: str) -> list[str]:
    """The lines of a text in which only masked tokens are predicted; arguments as `text_lines`."""
    block = blocks.token_blocks[scores.indices]
    count = len(blocks)
    # minlength, because the last blocks may have no masked token.
    nats = np.bincount(block, weights=scores.nats, minlength=count)
    correct = np.bincount(block[scores.correct], minlength=count)
    counts = {"correct": correct, "masked": np.bincount(block, minlength=count)}
    return _lines(nats, counts, evaluation)


def answer_lines(scores: TokenScores, evaluation: str) -> list[str]:
    """The lines of generated items, whose answers are predicted.

    Args:
        scores: scores of the answer tokens; `indices` are the indices of their items.
        evaluation: name of the items in signatures.
    """
    nats = np.bincount(scores.indices, scores.nats)
    answers = np.bincount(scores.indices)
    correct = np.bincount(scores.indices[scores.correct], minlength=len(answers))
    return _lines(nats, {"correct": correct, "answers": answers}, evaluation)


def _lines(
    nats: NDArray[Any], counts: Mapping[str, NDArray[np.int64]], evaluation: str
) -> list[str]:
    """Lines such as `nats=1.25 tokens=3 bytes=9 ctx=8 stride=4`."""
    lines = []
    for block, total in enumerate(nats):
        numbers = " ".join(f"{name}={values[block]}" for name, values in counts.items())
        lines.append(f"nats={total:.6f} {numbers} {evaluation}")
    return lines


# Scores


@dataclass(frozen=True)
class _Score:
    """How a score is computed from lines.

    line: matches the line of a block; its groups are the statistics, then the evaluation.
    unit: name of the last statistic, which is the denominator.
    value: computes the score from the sums of statistics over blocks.
    """

    line: re.Pattern[str]
    unit: str
    value: Callable[[NDArray[np.float64]], float]


def _mean_nats(sums: NDArray[np.float64]) -> float:
    """Mean negative log-likelihood from the sums (nats, correct, tokens)."""
    return float(sums[0] / max(1.0, float(sums[2])))


def _accuracy(sums: NDArray[np.float64]) -> float:
    """Percentage of correct tokens from the sums (nats, correct, tokens)."""
    return float(100 * sums[1] / max(1.0, float(sums[2])))


def _items_right(sums: NDArray[np.float64]) -> float:
    """Percentage of items with only correct answers, from the sums (nats, correct, answers, all
    correct, items).
    """
    return float(100 * sums[3] / sums[4])


_TEXT_LINE = re.compile(r"nats=(\S+) tokens=\d+ bytes=(\d+) (ctx=\d+ stride=\d+)")
_MASKED_LINE = re.compile(r"nats=(\S+) correct=(\d+) masked=(\d+) (ctx:\S+)")
_ANSWER_LINE = re.compile(r"nats=(\S+) correct=(\d+) answers=(\d+) (\S+)")
_BLOCK_SCORES = {
    BITS_PER_BYTE.name: _Score(
        _TEXT_LINE, "bytes", lambda sums: sums[0] / (math.log(2) * max(1.0, sums[-1]))
    ),
    MASKED_LOSS.name: _Score(_MASKED_LINE, "masked", _mean_nats),
    MASKED_ACCURACY.name: _Score(_MASKED_LINE, "masked", _accuracy),
}
_ANSWER_SCORES = {
    ACCURACY.name: _accuracy,
    ITEMS_RIGHT.name: _items_right,
    "answer_loss": _mean_nats,
}


def block_statistics(metric: str, lines: Sequence[str], split: str) -> Statistics:
    """The statistics of each block of a text from its line."""
    score = _BLOCK_SCORES[metric]
    values, evaluation = _parse(lines, score.line)
    evaluation = evaluation.replace("=", ":").replace(" ", "|")
    signature = f"{evaluation}|{score.unit}:{int(values[:, -1].sum())}|split:{split}"
    return Statistics(values, score.value, signature)


def answer_statistics(metric: str, lines: Sequence[str]) -> Statistics:
    """The statistics of each item from its line: (nats, correct, answers, all correct, 1)."""
    counts, evaluation = _parse(lines, _ANSWER_LINE)
    all_right = counts[:, 1] == counts[:, 2]
    values = np.column_stack([counts, all_right, np.ones(len(counts))])
    signature = f"{evaluation}|items:{len(lines)}|answers:{int(values[:, 2].sum())}"
    return Statistics(values, _ANSWER_SCORES[metric], signature)


def _parse(lines: Sequence[str], pattern: re.Pattern[str]) -> tuple[NDArray[np.float64], str]:
    """Parse lines with numbers, and with an evaluation, which is the last group of the pattern.

    Returns:
        The numbers (lines, groups - 1), and the evaluation, which all lines share.
    """
    statistics = []
    evaluation = ""
    for line in lines:
        match = pattern.fullmatch(line)
        assert match is not None, line
        *numbers, evaluation = match.groups()
        statistics.append([float(number) for number in numbers])
    return np.array(statistics), evaluation
