"""Student's t and F against tables, elementary forms and the normal distribution."""

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.stats.distributions import critical_t, f_tail, two_sided_p

# From a printed table of the t distribution: two-sided 5 % and 1 %.
TABLE = {1: (12.706, 63.657), 2: (4.303, 9.925), 3: (3.182, 5.841), 4: (2.776, 4.604), 5: (2.571, 4.032),
         10: (2.228, 3.169), 29: (2.045, 2.756), 30: (2.042, 2.750), 120: (1.980, 2.617),
         math.inf: (1.960, 2.576)}  # fmt: skip


@pytest.mark.parametrize("df", TABLE)
def test_critical_values_match_the_printed_table(df):
    assert tuple(round(critical_t(level, df), 3) for level in (0.05, 0.01)) == TABLE[df]


def test_one_and_two_degrees_of_freedom_match_their_elementary_forms():
    """df = 1 is Cauchy's distribution; for df = 2, P(|T| <= t) = t / sqrt(2 + t^2)."""
    for t in (0.0, 0.3, 1.0, 4.0, 50.0):
        assert two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-14)
        assert two_sided_p(-t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-14)


@given(st.floats(-8, 8))
def test_with_many_degrees_of_freedom_p_is_that_of_the_normal_distribution(t):
    p = 2 * NormalDist().cdf(-abs(t))
    assert two_sided_p(t, math.inf) == pytest.approx(p, rel=1e-12)
    assert two_sided_p(t, 1e9) == pytest.approx(p, rel=1e-5)


@given(st.floats(1, 2000), st.floats(1e-6, 0.99))
def test_the_critical_value_inverts_p(df, level):
    assert two_sided_p(critical_t(level, df), df) == pytest.approx(level, rel=1e-9)


@given(st.floats(0, 60), st.integers(1, 300))
def test_the_tail_of_f_with_one_degree_of_freedom_is_that_of_t_squared(t, df):
    assert f_tail(t * t, 1, df) == pytest.approx(two_sided_p(t, df), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("df", [1, 4, 30])
def test_the_tail_of_f_with_two_degrees_of_freedom_has_an_elementary_form(df):
    """P(F > f) = (1 + 2 f / df)^(-df / 2) for df1 = 2."""
    for f in (0.0, 0.2, 1.0, 6.0):
        assert f_tail(f, 2, df) == pytest.approx((1 + 2 * f / df) ** (-df / 2))


@pytest.mark.parametrize(("level", "df"), [(0.0, 2), (1.0, 2), (0.05, 0)])
def test_invalid_levels_and_degrees_of_freedom_are_errors(level, df):
    with pytest.raises(ValueError, match="is not"):
        critical_t(level, df)
