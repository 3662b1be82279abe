"""Generators of items, one function each.

A generator takes the random numbers of B items, their size and the data settings. It returns two
arrays (B, T): the tokens to read, and the token to predict after each of them, or 0 for none. All
items of a size have the same T. The tokens read so far determine the token to predict, so that an
accuracy of 100 % is possible.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.config.synthetic_data import MARKS, SyntheticData
from ablate.data.draws import Draws
from ablate.errors import Fault, Invalid

Tokens = NDArray[np.int64]


class Items(NamedTuple):
    """Items as token ids.

    inputs: tokens to read (B, T).
    targets: the token to predict after each one, 0 for none (B, T).
    """

    inputs: Tokens
    targets: Tokens


def recall(draws: Draws, pairs: int, data: SyntheticData) -> Items:
    """Associative recall (Arora et al., 2023): pairs of a key and a value, a gap, then every key
    again. The value after a repeated key must be predicted: `k3 v5 k1 v2 k1 v2 k3 v5`.
    """
    symbols = _number(data.symbols)
    gap = _number(data.gap)
    if pairs > symbols:
        problem = f"pairs={pairs} is larger than symbols={symbols}: no key stands twice"
        raise Invalid(Fault(problem, ("eval_pairs", "data.pairs", "data.symbols")))
    keys = MARKS + 1 + draws.permutations(symbols)[:, :pairs]
    values = MARKS + 1 + symbols + draws.integers(symbols, pairs)
    order = draws.permutations(pairs)
    queries = np.take_along_axis(keys, order, 1)
    answers = np.take_along_axis(values, order, 1)
    text = np.concatenate(
        [_interleave(keys, values), _filled(draws, gap, MARKS), _interleave(queries, answers)], 1
    )
    is_answer = np.zeros(text.shape[1], bool)
    is_answer[2 * pairs + gap + 1 :: 2] = True
    return predict(text, is_answer)


def copy(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Symbols, a mark, and the symbols again: `s1 s5 = s1 s5`."""
    symbols = _symbols(draws, length, data)
    return _append_answers(symbols, symbols)


def reverse(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Symbols, a mark, and the symbols in reverse order: `s1 s5 = s5 s1`."""
    symbols = _symbols(draws, length, data)
    return _append_answers(symbols, symbols[:, ::-1])


def selective_copy(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Symbols among filler tokens, a mark, and the symbols without filler tokens: `s1 . s5 = s1 s5`
    (Gu and Dao, 2023).
    """
    symbols = _symbols(draws, length, data)
    total = length + _number(data.gap)
    positions = np.sort(draws.permutations(total)[:, :length], 1)
    text = np.full((len(draws), total), MARKS + 1)
    np.put_along_axis(text, positions, symbols, 1)
    return _append_answers(text, symbols)


def induction(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Symbols, then a repeated symbol, whose successor must be predicted (Olsson et al., 2022):
    `s3` after `s1 s5 s3 s1 s5`. The repeated symbol occurs once among the symbols before it.
    """
    if length < 2:
        problem = f"length={length} is too small: a symbol and the one that follows it"
        raise Invalid(Fault(problem, ("eval_length", "data.length", "data.shortest")))
    count = _number(data.symbols)
    query = draws.integers(count, 1)
    text = (query + 1 + draws.integers(count - 1, length)) % count  # any other symbols
    position = draws.integers(length - 1, 1)
    np.put_along_axis(text, position, query, 1)
    answer = np.take_along_axis(text, position + 1, 1)
    is_answer = np.arange(length + 2) == length + 1
    return predict(MARKS + 2 + np.concatenate([text, query, answer], 1), is_answer)


def parity(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Bits; for each, whether the number of ones so far is odd."""
    bits = draws.integers(2, length)
    return Items(MARKS + bits, MARKS + np.cumsum(bits, 1) % 2)


def permutations(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Permutations; for each, the product of all permutations so far (Merrill et al., 2024).

    With five symbols, this is the word problem of S5.
    """
    n_permutations = len(_permutation_table(_number(data.symbols)))
    product_table = _product_table(_number(data.symbols))
    steps = draws.integers(n_permutations, length)
    products = steps.copy()
    for i in range(1, length):
        products[:, i] = product_table[products[:, i - 1], steps[:, i]]
    return Items(MARKS + steps, MARKS + products)


def dyck(draws: Draws, length: int, data: SyntheticData) -> Items:
    """The beginning of a word with balanced brackets (a Dyck word), a mark, and the brackets that
    close it: `(0 (1 (0 )0 = )1 )0 .`.
    """
    n_types = _number(data.symbols)
    depth = _number(data.depth)
    rows = np.arange(len(draws))
    opens = draws.uniform(length) < 0.5
    bracket_types = draws.integers(n_types, length)
    stack = np.zeros((len(draws), depth + 1), np.int64)
    height = np.zeros(len(draws), np.int64)
    text = np.empty((len(draws), length), np.int64)
    for i in range(length):
        is_open = (height == 0) | (opens[:, i] & (height < depth))
        top = stack[rows, height]
        text[:, i] = np.where(is_open, bracket_types[:, i], n_types + top)
        height = np.where(is_open, height + 1, height - 1)
        stack[rows, height] = np.where(is_open, bracket_types[:, i], stack[rows, height])
    # The stack from its top: one column for each bracket, then the end mark, then padding.
    level = height[:, None] - np.arange(depth + 1)
    closing = MARKS + 2 + n_types + stack[rows[:, None], np.maximum(level, 0)]
    answers = np.where(level > 0, closing, np.where(level == 0, MARKS + 1, 0))
    return _append_answers(MARKS + 2 + text, answers)


def modular(draws: Draws, size: int, data: SyntheticData) -> Items:
    """A sum modulo the number of symbols (Power et al., 2022): `3 + 30 = 2`."""
    count = _number(data.symbols)
    terms = draws.integers(count, 2)
    plus = _filled(draws, 1, MARKS)
    text = np.concatenate([MARKS + 2 + terms[:, :1], plus, MARKS + 2 + terms[:, 1:]], 1)
    return _append_answers(text, MARKS + 2 + terms.sum(1, keepdims=True) % count, MARKS + 1)


def predict(text: Tokens, is_answer: NDArray[np.bool_]) -> Items:
    """Items in which some tokens of a text (B, T + 1) must be predicted from earlier tokens."""
    return Items(text[:, :-1], np.where(is_answer, text, 0)[:, 1:])


def _append_answers(text: Tokens, answers: Tokens, mark: int = MARKS) -> Items:
    """A text, a mark, and the answers (B, n), padded with 0."""
    tokens = np.concatenate([text, np.full((len(text), 1), mark), answers], 1)
    return predict(tokens, np.arange(tokens.shape[1]) > text.shape[1])


def _symbols(draws: Draws, n: int, data: SyntheticData) -> Tokens:
    """(B, n) symbols."""
    return MARKS + 2 + draws.integers(_number(data.symbols), n)


@cache
def _permutation_table(symbols: int) -> Tokens:
    """All permutations of n symbols, (n!, n), in the order of their tokens."""
    return np.array(list(itertools.permutations(range(symbols))))


@cache
def _product_table(symbols: int) -> Tokens:
    """(n!, n!): index of the permutation that applies the first, then the second."""
    table = _permutation_table(symbols)
    # Read as numbers with these digits, the permutations ascend.
    digits = symbols ** np.arange(symbols)[::-1]
    return np.searchsorted(table @ digits, table[:, table].transpose(1, 0, 2) @ digits)


def _interleave(first: Tokens, second: Tokens) -> Tokens:
    """Alternate the columns of two arrays (B, n) -> (B, 2 n)."""
    return np.stack([first, second], 2).reshape(len(first), -1)


def _filled(draws: Draws, n: int, token: int) -> Tokens:
    """(B, n), filled with a token."""
    return np.full((len(draws), n), token)


def _number(setting: int | None) -> int:
    """The value of a setting that the generator uses, which is never None."""
    assert setting is not None
    return setting


DRAW = {
    draw.__name__.replace("_", "-"): draw
    for draw in (
        recall, copy, reverse, selective_copy, induction, parity, permutations, dyck, modular
    )
}  # fmt: skip
