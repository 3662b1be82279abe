"""The paired t test, Fisher's test, Holm's correction and Kendall's tau-b against scipy,
statsmodels and simulation.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ablate.stats.significance import (
    fisher_p,
    kendall_tau_b,
    paired_t_test,
)

# --- paired t test ---


def test_fewer_than_two_differences_have_no_test():
    assert paired_t_test([]) is None
    assert paired_t_test([5.0]) is None


def test_equal_differences_have_no_spread():
    assert paired_t_test([0.0, 0.0]) is None
    assert paired_t_test([-2.0, -2.0, -2.0]) is None
    scores, base = [25.3, 0.4, 99.5], [25.1, 0.2, 99.3]
    differences = [one - other for one, other in zip(scores, base, strict=True)]
    assert len(set(differences)) > 1  # in their last digits, which are no noise to compare with
    assert paired_t_test(differences) is None
    assert paired_t_test([0.2, 0.2, 0.2 + 1e-6]).p < 1e-6
    assert paired_t_test([1e6, 1e6 * (1 + 2**-52)]) is None


@given(
    st.lists(st.floats(-100, 100), min_size=2, max_size=8).filter(
        lambda values: np.std(values) > 1e-3
    )
)
def test_the_paired_t_test_matches_scipy(differences):
    test, expected = paired_t_test(differences), stats.ttest_1samp(differences, 0.0)
    interval = expected.confidence_interval(0.95)
    assert test.p == pytest.approx(expected.pvalue, rel=1e-9, abs=1e-15)
    assert (test.low, test.high) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-9)


# --- Holm's correction ---


@given(st.integers(0, 9), st.integers(1, 9), st.integers(0, 9), st.integers(1, 9))
def test_fisher_matches_scipy(events, n, base_events, base_n):
    events, base_events = min(events, n), min(base_events, base_n)
    table = [[events, n - events], [base_events, base_n - base_events]]
    assert fisher_p(events, n, base_events, base_n) == pytest.approx(
        stats.fisher_exact(table, "greater").pvalue
    )


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
    assert kendall_tau_b(x, y) == pytest.approx(
        (a * b).sum() / ((a * a).sum() * (b * b).sum()) ** 0.5
    )
