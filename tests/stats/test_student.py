"""Student's t against printed tables, closed forms and the integral of its density."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.stats.student import critical, two_sided

# Any printed table of the t distribution: two-sided 5 % and 1 %.
TABLE = {1: (12.706, 63.657), 2: (4.303, 9.925), 3: (3.182, 5.841), 4: (2.776, 4.604), 5: (2.571, 4.032),
         10: (2.228, 3.169), 29: (2.045, 2.756), 30: (2.042, 2.750), 120: (1.980, 2.617)}  # fmt: skip


@pytest.mark.parametrize("df", TABLE)
def test_critical_values_are_those_of_the_printed_table(df):
    assert tuple(round(critical(level, df), 3) for level in (0.05, 0.01)) == TABLE[df]


def test_one_and_two_degrees_of_freedom_have_elementary_forms():
    """Cauchy's distribution; and P(|T| <= t) = t / sqrt(2 + t^2)."""
    for t in (0.0, 0.3, 1.0, 4.0, 50.0):
        assert two_sided(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-15)
        assert two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-15)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 7, 8, 21, 40])
@pytest.mark.parametrize("t", [0.1, 1.0, 2.5, 6.0])
def test_it_is_the_integral_of_the_density(t, df):
    x = np.linspace(0, t, 20_001)
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    inside = 2 * np.trapezoid(scale * (1 + x * x / df) ** (-(df + 1) / 2), x)
    assert two_sided(t, df) == pytest.approx(1 - inside, abs=1e-7)


@given(st.integers(1, 300), st.floats(0.0005, 0.999))
def test_the_critical_value_is_exceeded_with_its_probability(df, level):
    assert two_sided(critical(level, df), df) == pytest.approx(level, abs=1e-12)


@given(st.integers(1, 100), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_p_is_a_probability_alike_on_both_sides_and_falls_with_size(df, a, b):
    assert 0 <= two_sided(a, df) <= 1
    assert two_sided(a, df) == two_sided(-a, df)
    if abs(a) < abs(b):
        assert two_sided(a, df) >= two_sided(b, df) - 1e-15


@pytest.mark.parametrize(("level", "df"), [(0.0, 2), (1.0, 2), (0.05, 0)])
def test_what_has_no_critical_value_is_refused(level, df):
    with pytest.raises(ValueError, match="is not"):
        critical(level, df)
