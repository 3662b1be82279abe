"""Student's t, the paired t test, Holm's correction and Kendall's tau-b against tables, closed forms and simulation."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.stats.tests import (
    LEVEL,
    critical_t,
    holm,
    holm_factors,
    kendall_tau_b,
    minimum_detectable_difference,
    paired_t_test,
    two_sided_p,
)

# --- Student's t ---

# From a printed table of the t distribution: two-sided 5 % and 1 %.
TABLE = {1: (12.706, 63.657), 2: (4.303, 9.925), 3: (3.182, 5.841), 4: (2.776, 4.604), 5: (2.571, 4.032),
         10: (2.228, 3.169), 29: (2.045, 2.756), 30: (2.042, 2.750), 120: (1.980, 2.617)}  # fmt: skip


@pytest.mark.parametrize("df", TABLE)
def test_critical_values_match_the_printed_table(df):
    assert tuple(round(critical_t(level, df), 3) for level in (0.05, 0.01)) == TABLE[df]


def test_one_and_two_degrees_of_freedom_match_their_elementary_forms():
    """df = 1 is Cauchy's distribution; for df = 2, P(|T| <= t) = t / sqrt(2 + t^2)."""
    for t in (0.0, 0.3, 1.0, 4.0, 50.0):
        assert two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-15)
        assert two_sided_p(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-15)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 7, 8, 21, 40])
@pytest.mark.parametrize("t", [0.1, 1.0, 2.5, 6.0])
def test_p_is_the_integral_of_the_density(t, df):
    x = np.linspace(0, t, 20_001)
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    inside = 2 * np.trapezoid(scale * (1 + x * x / df) ** (-(df + 1) / 2), x)
    assert two_sided_p(t, df) == pytest.approx(1 - inside, abs=1e-7)


@given(st.integers(1, 300), st.floats(0.0005, 0.999))
def test_the_critical_value_inverts_p(df, level):
    assert two_sided_p(critical_t(level, df), df) == pytest.approx(level, abs=1e-12)


@given(st.integers(1, 100), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_p_is_a_probability_symmetric_in_t_and_decreasing_in_its_size(df, a, b):
    assert 0 <= two_sided_p(a, df) <= 1
    assert two_sided_p(a, df) == two_sided_p(-a, df)
    if abs(a) < abs(b):
        assert two_sided_p(a, df) >= two_sided_p(b, df) - 1e-15


@pytest.mark.parametrize(("level", "df"), [(0.0, 2), (1.0, 2), (0.05, 0)])
def test_invalid_levels_and_degrees_of_freedom_are_errors(level, df):
    with pytest.raises(ValueError, match="is not"):
        critical_t(level, df)


# --- paired t test ---


def test_mean_spread_interval_and_p_match_a_calculation_by_hand():
    """-1, -2, -3: mean -2, s = 1, error 1 / sqrt 3; t(0.975, 2) = 4.3027; t^2 = 12, and p = 1 - t / sqrt(2 + t^2)."""
    test = paired_t_test([-1.0, -2.0, -3.0])
    assert (test.n, test.mean, test.std) == (3, -2.0, 1.0)
    assert test.low == pytest.approx(-2 - 4.302653 / math.sqrt(3), abs=1e-6)
    assert test.high == pytest.approx(-2 + 4.302653 / math.sqrt(3), abs=1e-6)
    assert test.p == pytest.approx(1 - math.sqrt(12 / 14), abs=1e-12)


def test_fewer_than_two_differences_have_no_test():
    assert paired_t_test([]) is None
    assert paired_t_test([5.0]) is None


def test_equal_differences_have_no_spread():
    assert paired_t_test([0.0, 0.0]).p == 1.0
    test = paired_t_test([-2.0, -2.0, -2.0])
    assert (test.p, test.low, test.high) == (0.0, -2.0, -2.0)


def test_p_at_the_minimum_detectable_difference_is_the_level():
    differences = [0.3, -0.8, 1.9, 0.4]
    detectable = minimum_detectable_difference(paired_t_test(differences), 0.01)
    mean = sum(differences) / 4
    assert paired_t_test([value - mean + detectable for value in differences]).p == pytest.approx(0.01, abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_interval_contains_the_true_mean_in_95_percent_of_simulated_studies(n):
    draw, truth, studies = random.Random(n), -0.7, 4000
    contained = 0
    for _ in range(studies):
        test = paired_t_test([draw.gauss(truth, 1.3) for _ in range(n)])
        contained += test.low <= truth <= test.high
    deviation = math.sqrt(0.95 * 0.05 / studies)
    assert abs(contained / studies - 0.95) < 4 * deviation
    assert critical_t(LEVEL, n - 1) > 1.96


# --- Holm's correction ---


def test_holm_matches_a_calculation_by_hand():
    """Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.04; then none is below the one before it."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm_factors([0.04, 0.01, 0.03, 0.02]) == [1, 4, 2, 3]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def test_holm_has_a_false_positive_in_at_most_5_percent_of_simulated_studies_without_an_effect():
    draw, studies = random.Random(0), 4000
    positives = sum(min(holm([draw.random() for _ in range(6)])) < LEVEL for _ in range(studies))
    assert positives / studies < 0.05 + 4 * math.sqrt(0.05 * 0.95 / studies)
    assert positives / studies > 0.03  # and the test is not simply never significant


# --- Kendall's tau-b ---


@pytest.mark.parametrize(
    ("x", "y", "tau"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 2, 4, 3], 4 / 6),
        ([1, 1, 2], [1, 2, 3], 2 / 6**0.5),
        ([1, 1], [1, 2], None),
        ([1], [1], None),
        ([], [], None),
    ],
)
def test_tau_b_matches_a_count_by_hand(x, y, tau):
    assert kendall_tau_b(x, y) == (None if tau is None else pytest.approx(tau))


def test_tau_b_is_the_correlation_of_the_signs_of_all_pairs():
    x, y = [3.0, 1.0, 2.0, 2.0, 5.0, 5.0], [2.0, 1.0, 1.0, 3.0, 9.0, 9.0]
    a, b = (np.sign(np.subtract.outer(values, values)) for values in (x, y))
    assert kendall_tau_b(x, y) == pytest.approx((a * b).sum() / ((a * a).sum() * (b * b).sum()) ** 0.5)
