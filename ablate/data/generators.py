"""Generators of items, one function each.

A function gets the random numbers of B items, their size and the data settings. It returns two
arrays (B, T): the tokens that are read, and at each of them the token to predict there, or 0 where
nothing is to be predicted. All items of a size have the same T. What is to be predicted follows
from the tokens read up to there, so that the best possible accuracy is 100 %.
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
    """Token ids that are read, and those to predict, (B, T) each."""

    inputs: Tokens
    targets: Tokens


def recall(draws: Draws, pairs: int, data: SyntheticData) -> Items:
    """Pairs of a key and a value, then every key again with its value to predict (Arora et al.,
    2023): `k3 v5 k1 v2 k1 v2 k3 v5`. The gap is between the pairs and the keys.
    """
    symbols = _number(data.symbols)
    gap = _number(data.gap)
    if pairs > symbols:
        why = f"pairs={pairs} is larger than symbols={symbols}: no key stands twice"
        raise Invalid(Fault(why, ("eval_pairs", "data.pairs", "data.symbols")))
    keys = MARKS + 1 + draws.permutations(symbols)[:, :pairs]
    values = MARKS + 1 + symbols + draws.integers(symbols, pairs)
    order = draws.permutations(pairs)
    asked, answers = (np.take_along_axis(x, order, 1) for x in (keys, values))
    text = np.concatenate(
        [_alternated(keys, values), _filled(draws, gap, MARKS), _alternated(asked, answers)], 1
    )
    is_answer = np.zeros(text.shape[1], bool)
    is_answer[2 * pairs + gap + 1 :: 2] = True
    return predicted(text, is_answer)


def copy(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Symbols, a mark, and the symbols again: `s1 s5 = s1 s5`."""
    symbols = _symbols(draws, length, data)
    return _answered(symbols, symbols)


def reverse(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Symbols, a mark, and the symbols from the last to the first: `s1 s5 = s5 s1`."""
    symbols = _symbols(draws, length, data)
    return _answered(symbols, symbols[:, ::-1])


def selective_copy(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Symbols among tokens without meaning, then alone: `s1 . s5 = s1 s5` (Gu and Dao, 2023)."""
    symbols = _symbols(draws, length, data)
    places = np.sort(draws.permutations(length + _number(data.gap))[:, :length], 1)
    text = np.full((len(draws), length + _number(data.gap)), MARKS + 1)
    np.put_along_axis(text, places, symbols, 1)
    return _answered(text, symbols)


def induction(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Symbols, then one of them that occurs once, before others: what followed it (Olsson et al.,
    2022): `s1 s5 s3 s1 s5` is followed by `s3`.
    """
    if length < 2:
        why = f"length={length} is too small: a symbol and the one that follows it"
        raise Invalid(Fault(why, ("eval_length", "data.length", "data.shortest")))
    count = _number(data.symbols)
    asked = draws.integers(count, 1)
    # Any symbol but the one that is asked for.
    text = (asked + 1 + draws.integers(count - 1, length)) % count
    place = draws.integers(length - 1, 1)
    np.put_along_axis(text, place, asked, 1)
    answer = np.take_along_axis(text, place + 1, 1)
    is_answer = np.arange(length + 2) == length + 1
    return predicted(MARKS + 2 + np.concatenate([text, asked, answer], 1), is_answer)


def parity(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Bits; at each, whether the number of ones so far is odd."""
    bits = draws.integers(2, length)
    return Items(MARKS + bits, MARKS + np.cumsum(bits, 1) % 2)


def permutations(draws: Draws, length: int, data: SyntheticData) -> Items:
    """Permutations; at each, the product of those so far, applied one after another (Merrill et
    al., 2024). With five symbols, the word problem of S5.
    """
    orders = _orders(_number(data.symbols))
    numbers = _products(_number(data.symbols))
    steps = draws.integers(len(orders), length)
    products = steps.copy()
    for place in range(1, length):
        products[:, place] = numbers[products[:, place - 1], steps[:, place]]
    return Items(MARKS + steps, MARKS + products)


def dyck(draws: Draws, length: int, data: SyntheticData) -> Items:
    """The beginning of a Dyck word, and the brackets that close it: `(0 (1 (0 )0 = )1 )0 .`."""
    kinds = _number(data.symbols)
    depth = _number(data.depth)
    rows = np.arange(len(draws))
    opens = draws.uniform(length) < 0.5
    kind = draws.integers(kinds, length)
    stack = np.zeros((len(draws), depth + 1), np.int64)
    height = np.zeros(len(draws), np.int64)
    text = np.empty((len(draws), length), np.int64)
    for place in range(length):
        is_open = (height == 0) | (opens[:, place] & (height < depth))
        closed = stack[rows, height]
        text[:, place] = np.where(is_open, kind[:, place], kinds + closed)
        height = np.where(is_open, height + 1, height - 1)
        stack[rows, height] = np.where(is_open, kind[:, place], stack[rows, height])
    # The stack from its top: one column for each bracket, then the end mark, then padding.
    level = height[:, None] - np.arange(depth + 1)
    closing = MARKS + 2 + kinds + stack[rows[:, None], np.maximum(level, 0)]
    answers = np.where(level > 0, closing, np.where(level == 0, MARKS + 1, 0))
    return _answered(MARKS + 2 + text, answers)


def modular(draws: Draws, size: int, data: SyntheticData) -> Items:
    """A sum modulo the number of symbols (Power et al., 2022): `3 + 30 = 2`."""
    count = _number(data.symbols)
    terms = draws.integers(count, 2)
    plus = _filled(draws, 1, MARKS)
    text = np.concatenate([MARKS + 2 + terms[:, :1], plus, MARKS + 2 + terms[:, 1:]], 1)
    return _answered(text, MARKS + 2 + terms.sum(1, keepdims=True) % count, MARKS + 1)


def predicted(text: Tokens, is_answer: NDArray[np.bool_]) -> Items:
    """A text (B, T + 1) of which some tokens are to be predicted from those before them."""
    return Items(text[:, :-1], np.where(is_answer, text, 0)[:, 1:])


def _answered(text: Tokens, answers: Tokens, mark: int = MARKS) -> Items:
    """A text, a mark, and the answers (B, n), of which those of padding are none."""
    whole = np.concatenate([text, np.full((len(text), 1), mark), answers], 1)
    return predicted(whole, np.arange(whole.shape[1]) > text.shape[1])


def _symbols(draws: Draws, n: int, data: SyntheticData) -> Tokens:
    """(B, n) symbols."""
    return MARKS + 2 + draws.integers(_number(data.symbols), n)


@cache
def _orders(symbols: int) -> Tokens:
    """The permutations of so many things, (n!, n), in the order of their tokens."""
    return np.array(list(itertools.permutations(range(symbols))))


@cache
def _products(symbols: int) -> Tokens:
    """(n!, n!): the number of the permutation that applies the first, then the second."""
    orders = _orders(symbols)
    digits = symbols ** np.arange(symbols)[::-1]  # as numbers with these digits, they ascend
    return np.searchsorted(orders @ digits, orders[:, orders].transpose(1, 0, 2) @ digits)


def _alternated(first: Tokens, second: Tokens) -> Tokens:
    """(B, 2 n): the columns of two arrays (B, n) by turns."""
    return np.stack([first, second], 2).reshape(len(first), -1)


def _filled(draws: Draws, n: int, token: int) -> Tokens:
    """(B, n) times a token."""
    return np.full((len(draws), n), token)


def _number(setting: int | None) -> int:
    """A setting that the generator uses, and which thus has a value."""
    assert setting is not None
    return setting


DRAW = {
    draw.__name__.replace("_", "-"): draw
    for draw in (
        recall, copy, reverse, selective_copy, induction, parity, permutations, dyck, modular
    )
}  # fmt: skip
