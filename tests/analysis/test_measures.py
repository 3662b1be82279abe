"""Measures are as computed by hand."""

import math

import pytest

from ablate.analysis.measures import measures
from tests.analysis.by_hand import weights


def test_measures_of_an_encoders_head():
    """Entropy 0, ln 2 and (1/2 ln 2 + 1/2 ln 4): ln 2 times 0, 1 and 1.5; distances 0, 1 and 1/4 + 2/2."""
    rows = [[1, 0, 0], [0.5, 0, 0.5], [0.5, 0.25, 0.25]]
    (head,) = measures(weights([rows], marks=(2,)))
    assert head.head == 1
    assert head.entropy == pytest.approx(math.log(2) * 2.5 / 3)
    assert head.distance == pytest.approx((0 + 1 + 1.25) / 3)
    assert head.itself == pytest.approx((1 + 0 + 0.25) / 3)
    assert head.previous == pytest.approx((0.5 + 0.25) / 2)
    assert head.next == pytest.approx((0 + 0.5) / 2)
    assert head.marks == pytest.approx((0 + 0.5 + 0.25) / 3)
    assert head.strongest == ((0, 0, 1.0), (1, 0, 0.5), (1, 2, 0.5))


def test_a_decoders_first_row_has_no_choice_and_none_looks_ahead():
    (head,) = measures(weights([[[1, 0], [0.25, 0.75]]], kind="decoder", marks=(0,)))
    assert head.next is None
    assert (head.itself, head.previous) == (pytest.approx(0.875), pytest.approx(0.25))
    assert head.marks == pytest.approx(0.625)
    assert head.strongest == ((1, 1, 0.75), (1, 0, 0.25))


def test_places_of_two_sequences_are_not_compared():
    first, second = measures(weights([[[1, 0, 0], [0, 0, 1]], [[0, 1, 0], [0, 1, 0]]], kind="cross", marks=(2,)))
    assert (first.distance, first.itself, first.previous, first.next) == (None, None, None, None)
    assert (first.head, first.marks) == (1, 0.5)
    assert (second.head, second.marks, second.entropy) == (2, 0.0, 0.0)
    assert second.strongest[0] == (0, 1, 1.0)


def test_a_single_token_has_no_neighbours():
    (head,) = measures(weights([[[1]]], kind="decoder", marks=(0,)))
    assert (head.itself, head.previous, head.strongest) == (1.0, None, ())


def test_uniform_weights_have_the_entropy_of_their_number():
    (head,) = measures(weights([[[0.2] * 5] * 5]))
    assert head.entropy == pytest.approx(math.log(5))
