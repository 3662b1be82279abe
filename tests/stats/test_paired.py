"""The paired t test by hand, and how often its interval holds the truth."""

import math
import random

import pytest

from ablate.stats.holm import factors, holm
from ablate.stats.paired import LEVEL, least_told, paired
from ablate.stats.student import critical


def test_mean_spread_interval_and_p_are_as_computed_by_hand():
    """-1, -2, -3: mean -2, s = 1, error 1 / sqrt 3; t(0.975, 2) = 4.3027; t^2 = 12, and p = 1 - t / sqrt(2 + t^2)."""
    found = paired([-1.0, -2.0, -3.0])
    assert (found.n, found.mean, found.std) == (3, -2.0, 1.0)
    assert found.low == pytest.approx(-2 - 4.302653 / math.sqrt(3), abs=1e-6)
    assert found.high == pytest.approx(-2 + 4.302653 / math.sqrt(3), abs=1e-6)
    assert found.p == pytest.approx(1 - math.sqrt(12 / 14), abs=1e-12)


def test_one_difference_or_none_has_no_test():
    assert paired([]) is None
    assert paired([5.0]) is None


def test_differences_that_are_all_the_same_have_no_spread():
    assert paired([0.0, 0.0]).p == 1.0
    found = paired([-2.0, -2.0, -2.0])
    assert (found.p, found.low, found.high) == (0.0, -2.0, -2.0)


def test_the_least_difference_told_is_the_one_at_which_p_meets_the_level():
    differences = [0.3, -0.8, 1.9, 0.4]
    least = least_told(paired(differences), 0.01)
    mean = sum(differences) / 4
    assert paired([value - mean + least for value in differences]).p == pytest.approx(0.01, abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_interval_holds_the_truth_in_95_of_100_studies(n):
    draw, truth, studies = random.Random(n), -0.7, 4000
    held = 0
    for _ in range(studies):
        found = paired([draw.gauss(truth, 1.3) for _ in range(n)])
        held += found.low <= truth <= found.high
    deviation = math.sqrt(0.95 * 0.05 / studies)
    assert abs(held / studies - 0.95) < 4 * deviation
    assert critical(LEVEL, n - 1) > 1.96


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.04, and none below the one before it."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert factors([0.04, 0.01, 0.03, 0.02]) == [1, 4, 2, 3]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def test_holm_raises_a_false_alarm_in_at_most_5_of_100_studies_without_an_effect():
    draw, studies = random.Random(0), 4000
    alarms = sum(min(holm([draw.random() for _ in range(6)])) < LEVEL for _ in range(studies))
    assert alarms / studies < 0.05 + 4 * math.sqrt(0.05 * 0.95 / studies)
    assert alarms / studies > 0.03  # and is not simply silent
