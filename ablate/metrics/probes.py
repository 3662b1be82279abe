"""Probes of a trained language model: loss by position, loss on repetitions, minimal pairs.

Scores are computed from lines of numbers, which follow the lines of blocks in the predictions file.
A line begins with `text` for a block of the test text, `sequence` for a random sequence, and `pair`
for a minimal pair.
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
from ablate.metrics.resampling import Statistics
from ablate.metrics.token_scores import Blocks, TokenScores
from ablate.stats.metrics import INDUCTION_LOSS, LOSS_AFTER, PAIRS_RIGHT, TEXT_PROBES

SEQUENCES = 128  # number of random sequences
SEQUENCE_SEED = 20170612


# Lines


def probe_lines(
    scores: TokenScores, contexts: Contexts, blocks: Blocks, evaluation: str
) -> Iterator[str]:
    """A line for each block, with the nats and the number of the tokens of each probe."""
    spans, repeated = _classify_tokens(contexts)
    masks = [spans == n for n in LOSS_AFTER.values()]
    columns = []
    for mask in (*masks, repeated, ~repeated):
        block = blocks.token_blocks[mask]
        nats = np.bincount(block, scores.nats[mask], minlength=len(blocks))
        columns.append((nats, np.bincount(block, minlength=len(blocks))))
    for block in range(len(blocks)):
        sums = []
        for metric, (nats, counts) in zip(TEXT_PROBES, columns, strict=True):
            sums.append(f"{metric.name}={nats[block]:.6f}/{counts[block]}")
        yield f"text {' '.join(sums)} {evaluation}"


def _classify_tokens(contexts: Contexts) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Classify the tokens of a text by their contexts.

    Returns:
        For each token the largest value of LOSS_AFTER that is at most the number of tokens that
        predict it; and whether the token and its predecessor repeat a pair of their context.
    """
    size = len(contexts.ids)
    values = np.array(list(LOSS_AFTER.values()))
    spans = np.zeros(size, np.int64)
    repeated = np.zeros(size, np.bool_)
    limits = zip(contexts.starts, contexts.ends, contexts.scored, strict=True)
    for i, (start, end, scored) in enumerate(limits):
        targets = contexts.ids[start:end].astype(np.int64)
        first_input = BOS if contexts.begins[i] else int(contexts.ids[start - 1])
        pairs = np.concatenate([[first_input], targets[:-1]]) << 32 | targets
        is_first = np.zeros(len(pairs), np.bool_)
        is_first[np.unique(pairs, return_index=True)[1]] = True
        n_inputs = np.arange(scored - start, end - start) + 1  # tokens that predict each target
        spans[scored:end] = values[np.searchsorted(values, n_inputs, side="right") - 1]
        repeated[scored:end] = ~is_first[scored - start :]
    return spans, repeated


def repeated_sequences(vocab_size: int, context: int) -> tuple[Contexts, int]:
    """Draw random sequences, in each of which all tokens differ, and repeat each sequence once.

    Args:
        vocab_size: V; marks are not drawn.
        context: largest number of tokens that predict a token.

    Returns:
        The contexts, and the length of a sequence: at most half of `context`.
    """
    length = min(context // 2, vocab_size - FIRST_TOKEN)
    random = np.random.default_rng(SEQUENCE_SEED)
    ids = []
    for _ in range(SEQUENCES):
        sequence = FIRST_TOKEN + random.permutation(vocab_size - FIRST_TOKEN)[:length]
        ids += [sequence, sequence]
    offsets = 2 * length * np.arange(SEQUENCES + 1)
    sequences = TokenSequences(np.concatenate(ids).astype(np.uint32), offsets)
    size = max(1, 2 * length)
    return cut(sequences, size, size, joined=False, score_once=True), length


def sequence_lines(scores: TokenScores, length: int, vocab_size: int) -> Iterator[str]:
    """A line for each random sequence: nats and number of the tokens of its repetition.

    The first token of the repetition is excluded, because nothing predicts it.
    """
    totals = scores.nats.reshape(SEQUENCES, 2 * length)[:, length + 1 :].sum(1)
    for nats in totals:
        yield f"sequence induction_loss={nats:.6f}/{length - 1} length:{length}|V:{vocab_size}"


def pair_lines(scores: TokenScores, sentences: TokenSequences, evaluation: str) -> Iterator[str]:
    """A line for each pair: the nats of the good and of the bad sentence, without end marks.

    Args:
        scores: scores of all tokens of the sentences.
        sentences: the good and the bad sentence of each pair, alternating.
        evaluation: name of the contexts in signatures.
    """
    is_text = np.asarray(sentences.ids) != EOS
    sentence = np.repeat(np.arange(len(sentences)), np.diff(sentences.offsets))  # of each token
    nats = np.bincount(sentence[is_text], scores.nats[is_text], minlength=len(sentences))
    for good, bad in nats.reshape(-1, 2):
        yield f"pair good={good:.6f} bad={bad:.6f} {evaluation}"


# Scores


def probe_statistics(metric: str, predictions: Sequence[str], split: str) -> Statistics:
    """The statistics of each item of a probe: (nats, tokens), or (correct, 1) of a pair.

    Args:
        metric: name of the metric.
        predictions: lines of all probes.
        split: name of the text or of the pairs in the signature; not used for random sequences.

    Raises:
        StoreError: no line has a token for the metric.
    """
    statistics, evaluation = _parse(metric, predictions)
    sums = statistics.sum(0)
    if not sums[1]:
        raise StoreError(f"metric {metric}: the evaluation has no token for it")
    score = _value(metric, sums, 0.0)
    unit = "pairs" if metric == PAIRS_RIGHT.name else "tokens"
    signature = f"{evaluation}|{unit}:{sums[1]:.0f}"
    if metric != INDUCTION_LOSS.name:
        signature += f"|split:{split}"
    # A resampled test set without any token of the probe gets the score of the whole.
    return Statistics(statistics, lambda sums: _value(metric, sums, score), signature)


def _value(metric: str, sums: NDArray[np.float64], default: float) -> float:
    """The mean of (nats, tokens), or the percentage of (correct, pairs); the default if empty."""
    if not sums[1]:
        return default
    return float(sums[0] / sums[1]) * (100 if metric == PAIRS_RIGHT.name else 1)


def _parse(metric: str, predictions: Sequence[str]) -> tuple[NDArray[np.float64], str]:
    """The statistics of each item (items, 2), and the evaluation, the same in all lines."""
    is_pair = metric == PAIRS_RIGHT.name
    numbers = r"good=(\S+) bad=(\S+)" if is_pair else rf".*\b{metric}=(\S+)/(\d+).*"
    pattern = re.compile(rf"(?:text|sequence|pair) {numbers} (\S+)")
    rows = []
    evaluation = ""
    for line in predictions:
        match = pattern.fullmatch(line)
        if match is None:
            continue
        first = float(match[1])
        second = float(match[2])
        evaluation = match[3]
        if is_pair:
            rows.append((float(first < second), 1.0))  # equal probabilities are wrong
        else:
            rows.append((first, second))
    return np.array(rows, np.float64).reshape(-1, 2), evaluation
