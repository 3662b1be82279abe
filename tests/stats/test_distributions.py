"""Student's t and F against tables, elementary forms and scipy."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special, stats

from ablate.stats.distributions import critical_t, f_tail, incomplete_beta, two_sided_p


# From a printed table of the t distribution: two-sided 5 % and 1 %.
@given(st.floats(0.5, 2000), st.floats(-60, 60))
def test_p_matches_scipy(df, t):
    assert two_sided_p(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-9, abs=1e-15)


@given(st.floats(-8, 8))
def test_with_many_degrees_of_freedom_p_is_that_of_the_normal_distribution(t):
    for df in (math.inf, 1.1e7):
        assert two_sided_p(t, df) == pytest.approx(2 * stats.norm.sf(abs(t)), rel=1e-12)


@given(st.floats(1, 2000), st.floats(1e-6, 0.99))
def test_the_critical_value_inverts_p_and_matches_scipy(df, level):
    assert two_sided_p(critical_t(level, df), df) == pytest.approx(level, rel=1e-9)
    assert critical_t(level, df) == pytest.approx(stats.t.isf(level / 2, df), rel=1e-8)


@given(st.floats(0, 1e4), st.integers(1, 50), st.integers(1, 300))
@example(2.2e-16, 1, 2)
@example(49.0, 1, 56)
def test_the_tail_of_f_matches_scipy(f, df1, df2):
    assert f_tail(f, df1, df2) == pytest.approx(stats.f.sf(f, df1, df2), rel=1e-8, abs=1e-200)


@given(st.floats(-0.5, 1.5), st.floats(0.3, 100), st.floats(0.3, 100))
def test_the_incomplete_beta_function_matches_scipy(x, a, b):
    expected = special.betainc(a, b, min(1.0, max(0.0, x)))
    assert incomplete_beta(x, a, b) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("x", "value"), [(-0.5, 0.0), (0.0, 0.0), (1.0, 1.0), (1.5, 1.0)])
def test_the_incomplete_beta_function_is_0_and_1_at_and_beyond_its_ends(x, value):
    assert incomplete_beta(x, 2.0, 3.0) == value


@pytest.mark.parametrize(("level", "df"), [(0.0, 2), (1.0, 2), (0.05, 0)])
def test_invalid_levels_and_degrees_of_freedom_are_errors(level, df):
    with pytest.raises(ValueError, match="is not"):
        critical_t(level, df)
