"""Generators of items, one function each.

A function gets the random numbers of B items, their size and the data settings. It returns two
arrays (B, T): the tokens that are read, and at each of them the token to predict there, or 0 where
nothing is to be predicted. All items of a size have the same T. What is to be predicted follows
from the tokens read up to there, so that the best possible accuracy is 100 %.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablate.config.synthetic_data import MARKS, SyntheticData
from ablate.data.draws import Draws

Tokens = NDArray[np.int64]


class Items(NamedTuple):
    """Token ids that are read, and those to predict, (B, T) each."""

    inputs: Tokens
    targets: Tokens


def recall(draws: Draws, pairs: int, data: SyntheticData) -> Items:
    """Pairs of a key and a value, then every key again with its value to predict (Arora et al.,
    2023): `k3 v5 k1 v2 k1 v2 k3 v5`. The gap is between the pairs and the keys.
    """
    symbols, gap = _number(data.symbols), _number(data.gap)
    if pairs > symbols:
        raise ValueError(f"pairs={pairs} is larger than symbols={symbols}: no key stands twice")
    keys = MARKS + 1 + draws.orders(symbols)[:, :pairs]
    values = MARKS + 1 + symbols + draws.integers(symbols, pairs)
    order = draws.orders(pairs)
    asked, answers = (np.take_along_axis(x, order, 1) for x in (keys, values))
    text = np.concatenate(
        [_alternated(keys, values), _filled(draws, gap, MARKS), _alternated(asked, answers)], 1
    )
    is_answer = np.zeros(text.shape[1], bool)
    is_answer[2 * pairs + gap + 1 :: 2] = True
    return predicted(text, is_answer)


def predicted(text: Tokens, is_answer: NDArray[np.bool_]) -> Items:
    """A text (B, T + 1) of which some tokens are to be predicted from those before them."""
    return Items(text[:, :-1], np.where(is_answer, text, 0)[:, 1:])


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


DRAW = {"recall": recall}
