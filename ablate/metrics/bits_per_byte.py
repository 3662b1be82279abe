"""Bits per byte of a text under a language model, in blocks of the text, so that models can be
compared block by block.

A block is the same text for every vocabulary and every context. A token that reaches over the end
of a block belongs to the block in which it begins; the end mark of a document belongs to the block
of the character before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ablate.data.contexts import ContextBatch
from ablate.data.corpus import TokenSequences
from ablate.data.tokenizer import Tokenizer
from ablate.kernels.cross_entropy import soft_cap
from ablate.metrics import resampling
from ablate.metrics.evaluation import score_batches
from ablate.store.records import Measurement

BLOCK_BYTES = 1024
_ROWS = 1024  # tokens whose logits are in memory at once
_LINE = re.compile(r"nats=(\S+) tokens=(\d+) bytes=(\d+) ctx=(\d+) stride=(\d+)")


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


def nats_of_tokens(
    states: Tensor, weight: Tensor, targets: Tensor, cap: float | None = None
) -> Tensor:
    """Negative log-likelihood of each token in nats: states (n, d_model), output matrix (V,
    d_model), soft cap of the logits -> (n), fp64.
    """
    parts = logits_in_parts(states, weight, targets, cap)
    return torch.cat(
        [F.cross_entropy(logits, some, reduction="none").double() for logits, some in parts]
    )


def logits_in_parts(
    states: Tensor, weight: Tensor, targets: Tensor, cap: float | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits (m, V) in fp32 and the targets (m) of a number of tokens that fits into the
    memory.
    """
    for start in range(0, len(targets), _ROWS):
        part = slice(start, start + _ROWS)
        yield soft_cap(F.linear(states[part], weight).float(), cap), targets[part]


def lines_of(nats: NDArray[np.float64], blocks: Blocks, context: int, stride: int) -> list[str]:
    """One line for each block, with all that its bits per byte and their signature follow from.

    Args:
        nats: of each token of the text, in order.
        blocks: of the text.
        context: tokens that predict a token.
        stride: tokens scored in each context.
    """
    sums = np.bincount(blocks.of_token, weights=nats)
    return [
        f"nats={total:.6f} tokens={tokens} bytes={size} ctx={context} stride={stride}"
        for total, tokens, size in zip(sums, blocks.tokens, blocks.bytes, strict=True)
    ]


def measure(lines: Sequence[str], split: str) -> Measurement:
    """Bits per byte of a text from the lines of its blocks, and of resampled texts.

    Args:
        lines: from `lines_of`.
        split: name of the text, for the signature.
    """
    parsed = [_parse(line) for line in lines]
    statistics = np.array([(nats, size) for nats, _, size, _, _ in parsed])
    context, stride = parsed[0][3:]
    size = int(statistics[:, 1].sum())
    return resampling.measure(
        statistics, bits_per_byte, f"ctx:{context}|stride:{stride}|bytes:{size}|split:{split}"
    )


def block_scores(lines: Sequence[str]) -> list[float]:
    """Bits per byte of each block."""
    return [bits_per_byte(np.array([nats, size])) for nats, _, size, _, _ in map(_parse, lines)]


def bits_per_byte(sums: NDArray[np.float64]) -> float:
    """Bits per byte from (nats, bytes)."""
    return float(sums[0] / (math.log(2) * max(1.0, float(sums[1]))))


def _parse(line: str) -> tuple[float, int, int, int, int]:
    match = _LINE.fullmatch(line)
    assert match is not None, line
    nats, *counts = match.groups()
    tokens, size, context, stride = map(int, counts)
    return float(nats), tokens, size, context, stride


def collect_nats(
    count: int,
    batches: Callable[[int], Iterable[tuple[NDArray[np.int64], ContextBatch]]],
    nats_of: Callable[[ContextBatch], Tensor],
    device: torch.device,
    after_batch: Callable[[], None],
) -> NDArray[np.float64]:
    """Nats of each token of a text.

    Args:
        count: tokens of the text.
        batches: (place of each token that counts, batch); as for `score_batches`.
        nats_of: nats of each token that counts in a batch.
        device: of the model.
        after_batch: called after each batch.
    """

    def score(places_and_batch: tuple[NDArray[np.int64], ContextBatch]) -> NDArray[np.float64]:
        places, batch = places_and_batch
        scores = np.stack([places, nats_of(batch.to(device)).cpu().numpy()])
        after_batch()
        return scores

    # NaN until a token is scored, so that a missing one cannot pass unnoticed.
    nats = np.full(count, np.nan)
    for places, values in score_batches(batches, score, device):
        nats[places.astype(np.int64)] = values
    assert np.isfinite(nats).all() or not np.isnan(nats).any(), "each token is scored once"
    return nats
