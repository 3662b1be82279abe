"""Axes hold their values, and their ticks are round."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ablate.page.axis import Axis, axis, label

values = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=9)


@given(values, st.booleans())
@example([1.0, 2.2250738585072014e-308], False)  # the least float, below which air would be 0
@example([1.0, 1.7e308], False)
def test_every_value_is_within_and_keeps_its_order(found, zero):
    held = axis(found, 10, 200, zero=zero)
    places = [held.place(value) for value in sorted(found)]
    assert all(10 <= place <= 200 for place in places)
    assert places == sorted(places)
    if zero:
        assert 10 <= held.place(0) <= 200


@given(st.lists(st.floats(1e-3, 1e15), min_size=1, max_size=9), st.sampled_from([None, True, False]))
def test_ticks_lie_within_rise_and_are_few(found, log):
    held = axis(found, 0, 1, log=log)
    ticks = held.ticks()
    assert all(held.low * (1 - 1e-9) <= tick <= held.high * (1 + 1e-9) for tick in ticks)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= 6


def test_ticks_are_round():
    assert Axis(0, 100, 0, 1).ticks() == [0, 20, 40, 60, 80, 100]
    assert Axis(-3.1, 3.1, 0, 1).ticks() == [-2, 0, 2]
    assert Axis(1, 90, 0, 1, log=True).ticks(9) == [1, 2, 5, 10, 20, 50]
    assert Axis(1, 1e6, 0, 1, log=True).ticks(9) == [1, 10, 100, 1e3, 1e4, 1e5, 1e6]


def test_an_axis_is_logarithmic_where_values_are_far_apart_and_above_zero():
    assert axis([1, 100], 0, 1).log
    assert not axis([1, 2], 0, 1).log
    assert not axis([0, 100], 0, 1).log
    assert Axis(1, 100, 0, 10, log=True).place(10) == pytest.approx(5)


def test_no_values_and_one_value_have_an_axis_too():
    assert axis([], 0, 1).high > axis([], 0, 1).low
    assert axis([5, math.inf, math.nan], 0, 1).place(5) == pytest.approx(0.5)
    assert axis([0.0], 0, 1).place(0.0) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.5, "0.5"), (20, "20"), (3000, "3K"), (1.5e12, "1.5T"), (-2e6, "-2M")]
)
def test_labels_are_short(value, text):
    assert label(value) == text
