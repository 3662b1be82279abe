"""Probes of a language model, without training: loss by place, on repetitions; minimal pairs.

Each is scored from lines of numbers, as blocks are: `text` for a block of the test text, `sequence`
for a random sequence, `pair` for two sentences. The lines follow those of the blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ablate.data.contexts import Contexts, cut
from ablate.data.corpus import TokenSequences
from ablate.data.tokenizer import BOS, EOS, FIRST_TOKEN
from ablate.errors import StoreError
from ablate.metrics.blocks import Blocks, TokenScores
from ablate.metrics.resampling import Statistics
from ablate.stats.metrics import INDUCTION_LOSS, LOSS_AFTER, PAIRS_RIGHT, TEXT_PROBES

SEQUENCES = 128  # random ones
SEQUENCE_SEED = 20170612


# Lines


def probe_lines(
    scores: TokenScores, contexts: Contexts, blocks: Blocks, evaluation: str
) -> Iterator[str]:
    """A line for each block: of each probe the nats of its tokens, and their number."""
    spans, repeated = _kinds(contexts)
    columns = []
    for mask in (*(spans == n for n in LOSS_AFTER.values()), repeated, ~repeated):
        block = blocks.of_token[mask]
        nats = np.bincount(block, scores.nats[mask], minlength=len(blocks))
        columns.append((nats, np.bincount(block, minlength=len(blocks))))
    for block in range(len(blocks)):
        sums = []
        for metric, (nats, counts) in zip(TEXT_PROBES, columns, strict=True):
            sums.append(f"{metric.name}={nats[block]:.6f}/{counts[block]}")
        yield f"text {' '.join(sums)} {evaluation}"


def _kinds(contexts: Contexts) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Of each token of a text: the largest value of LOSS_AFTER up to the number of tokens that
    predict it; and whether it ends a pair of tokens that its context had before.
    """
    size = len(contexts.ids)
    values = np.array(list(LOSS_AFTER.values()))
    spans = np.zeros(size, np.int64)
    repeated = np.zeros(size, np.bool_)
    limits = zip(contexts.starts, contexts.ends, contexts.scored, strict=True)
    for i, (start, end, scored) in enumerate(limits):
        targets = contexts.ids[start:end].astype(np.int64)
        before = BOS if contexts.begins[i] else int(contexts.ids[start - 1])
        pairs = np.concatenate([[before], targets[:-1]]) << 32 | targets
        is_first = np.zeros(len(pairs), np.bool_)
        is_first[np.unique(pairs, return_index=True)[1]] = True
        read = np.arange(scored - start, end - start) + 1  # tokens that predict each one
        spans[scored:end] = values[np.searchsorted(values, read, side="right") - 1]
        repeated[scored:end] = ~is_first[scored - start :]
    return spans, repeated


def repeated_sequences(vocab_size: int, context: int) -> tuple[Contexts, int]:
    """Random sequences of different tokens, each followed by itself; and the length of one.

    Args:
        vocab_size: V; marks are not drawn.
        context: tokens that predict a token; a sequence has at most half of them.
    """
    length = min(context // 2, vocab_size - FIRST_TOKEN)
    random = np.random.default_rng(SEQUENCE_SEED)
    parts = []
    for _ in range(SEQUENCES):
        sequence = FIRST_TOKEN + random.permutation(vocab_size - FIRST_TOKEN)[:length]
        parts += [sequence, sequence]
    offsets = 2 * length * np.arange(SEQUENCES + 1)
    sequences = TokenSequences(np.concatenate(parts).astype(np.uint32), offsets)
    size = max(1, 2 * length)
    return cut(sequences, size, size, joined=False, score_once=True), length


def sequence_lines(scores: TokenScores, length: int, vocab_size: int) -> Iterator[str]:
    """A line for each random sequence: the nats of its repetition without the first token, which
    nothing tells, and the number of these tokens.
    """
    of_sequences = scores.nats.reshape(SEQUENCES, 2 * length)[:, length + 1 :].sum(1)
    for nats in of_sequences:
        yield f"sequence induction_loss={nats:.6f}/{length - 1} length:{length}|V:{vocab_size}"


def pair_lines(scores: TokenScores, sentences: TokenSequences, evaluation: str) -> Iterator[str]:
    """A line for each pair: the nats of the good and of the bad sentence, without end marks.

    Args:
        scores: of all tokens of the sentences.
        sentences: the good and the bad one of each pair in turn.
        evaluation: the contexts, as the signature names them.
    """
    is_text = np.asarray(sentences.ids) != EOS
    of_token = np.repeat(np.arange(len(sentences)), np.diff(sentences.offsets))
    nats = np.bincount(of_token[is_text], scores.nats[is_text], minlength=len(sentences))
    for good, bad in nats.reshape(-1, 2):
        yield f"pair good={good:.6f} bad={bad:.6f} {evaluation}"


# Scores


def probe_statistics(metric: str, predictions: Sequence[str], split: str) -> Statistics:
    """The statistics of each item of a probe: (nats, tokens), or of a pair (right, 1).

    Args:
        metric: its name.
        predictions: lines of an evaluation with probes; those of other probes are left out.
        split: name of the text or of the pairs, for the signature; random sequences have none.

    Raises:
        StoreError: nothing was measured for the metric.
    """
    statistics, evaluation = _parse(metric, predictions)
    sums = statistics.sum(0)
    if not sums[1]:
        raise StoreError(f"metric {metric}: the evaluation has no token for it")
    whole = _value(metric, sums, 0.0)
    what = "pairs" if metric == PAIRS_RIGHT.name else "tokens"
    signature = f"{evaluation}|{what}:{sums[1]:.0f}"
    if metric != INDUCTION_LOSS.name:
        signature += f"|split:{split}"
    # Items without any token of the probe say nothing, and have the score of the whole.
    return Statistics(statistics, lambda sums: _value(metric, sums, whole), signature)


def _value(metric: str, sums: NDArray[np.float64], empty: float) -> float:
    """The mean of (nats, tokens), or the percentage of (right, pairs)."""
    if not sums[1]:
        return empty
    return float(sums[0] / sums[1]) * (100 if metric == PAIRS_RIGHT.name else 1)


def _parse(metric: str, predictions: Sequence[str]) -> tuple[NDArray[np.float64], str]:
    """The statistics of each item (items, 2), and the evaluation that all lines name."""
    is_pair = metric == PAIRS_RIGHT.name
    numbers = r"good=(\S+) bad=(\S+)" if is_pair else rf".*\b{metric}=(\S+)/(\d+).*"
    line_of_probe = re.compile(rf"(?:text|sequence|pair) {numbers} (\S+)")
    rows = []
    evaluation = ""
    for line in predictions:
        match = line_of_probe.fullmatch(line)
        if match is None:
            continue
        first = float(match[1])
        second = float(match[2])
        evaluation = match[3]
        rows.append((float(first < second), 1.0) if is_pair else (first, second))  # a tie is wrong
    return np.array(rows, np.float64).reshape(-1, 2), evaluation
