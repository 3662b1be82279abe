"""Fractions against the handbook's table and their definition; effects against statsmodels' least
squares.
"""

import itertools
import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ablate.stats.factorial import DesignGenerator, Fraction, effects, smallest_fraction

NAMES = tuple("ABCDEFGHIJ")
# Runs of the smallest two-level design of each resolution, by number of factors.
# Source: NIST/SEMATECH e-Handbook of Statistical Methods, table 5.3.3.4.7.
RUNS = {
    3: {3: 4, 4: 8, 5: 8, 6: 8, 7: 8, 8: 16, 9: 16, 10: 16},
    4: {4: 8, 5: 16, 6: 16, 7: 16, 8: 16, 9: 32, 10: 32},
    5: {5: 16, 6: 32, 7: 64, 8: 64, 9: 128, 10: 128},
}


@pytest.mark.parametrize(
    ("resolution", "k", "runs"), [(r, k, n) for r, one in RUNS.items() for k, n in one.items()]
)
def test_the_smallest_fraction_has_the_runs_of_the_handbook(resolution, k, runs):
    fraction = smallest_fraction(NAMES[:k], resolution)
    assert len(fraction.cells()) == runs
    assert fraction.resolution >= resolution
    assert {level for cell in fraction.cells() for level in cell.values()} == {-1, 1}


def test_without_a_fraction_of_this_resolution_the_design_is_full():
    assert smallest_fraction(NAMES[:3], 4) == Fraction(NAMES[:3])
    assert Fraction(NAMES[:3]).resolution is None


@st.composite
def fractions(draw):
    k = draw(st.integers(2, 5))
    p = draw(st.integers(0, k - 2))
    basic = NAMES[: k - p]
    products = st.sets(st.sampled_from(basic), min_size=2)
    generators = [DesignGenerator(name, frozenset(draw(products))) for name in NAMES[k - p : k]]
    return Fraction(NAMES[:k], tuple(generators))


@given(fractions())
def test_aliases_have_equal_columns_and_contrasts_orthogonal_ones(fraction):
    cells = fraction.cells()

    def column(effect):
        return [math.prod(cell[name] for name in effect) for cell in cells]

    assert len({tuple(cell.values()) for cell in cells}) == len(cells) == 2 ** len(fraction.basic)
    for word in fraction.relation:
        assert column(word) == [1] * len(cells)
    contrasts = fraction.contrasts()
    assert len(contrasts) == len(cells) - 1  # every degree of freedom between the cells
    for effect in contrasts:
        for other in fraction.aliases(effect):
            assert column(other) == column(effect)
            assert len(other) >= len(effect)
    for one, other in itertools.combinations(contrasts, 2):
        assert np.dot(column(one), column(other)) == 0


@settings(max_examples=20)
@given(fractions(), st.integers(0, 2**32 - 1), st.booleans())
def test_effects_and_intervals_equal_least_squares(fraction, seed, balanced):
    """A saturated model of coded levels: an effect is twice its coefficient."""
    random = np.random.default_rng(seed)
    cells, contrasts = fraction.cells(), fraction.contrasts()
    counts = [3] * len(cells) if balanced else random.integers(1, 5, len(cells))
    counts[0] = 3  # at least one cell with a spread
    scores = [list(random.normal(index % 3, 1.0, n)) for index, n in enumerate(counts)]
    rows = [
        [1, *(math.prod(cell[name] for name in effect) for effect in contrasts)]
        for cell, each in zip(cells, scores, strict=True) for _ in each
    ]  # fmt: skip
    fitted = sm.OLS(np.concatenate(scores), np.array(rows, dtype=float)).fit()
    found = effects(fraction, scores)
    assert [one.effect for one in found] == contrasts
    assert [one.value for one in found] == pytest.approx(list(2 * fitted.params[1:]), abs=1e-9)
    assert [one.standard_error for one in found] == pytest.approx(list(2 * fitted.bse[1:]))
    assert [one.p for one in found] == pytest.approx(list(fitted.pvalues[1:]), abs=1e-9)
    # One of the intervals of least squares, at the level at which Holm's method stops or goes on.
    for place, one in enumerate(found, 1):
        assert (one.low <= 0 <= one.high) == (one.p_holm >= 0.05)
        levels = [0.05 / left for left in range(1, len(found) + 1)]
        nearest = min(
            (2 * fitted.conf_int(level)[place] for level in levels),
            key=lambda ends, low=one.low: abs(ends[0] - low),
        )
        assert (one.low, one.high) == pytest.approx(tuple(nearest), abs=1e-9)


def test_an_additive_score_has_no_interactions_and_holm_keeps_the_level():
    fraction = Fraction(("A", "B"))
    scores = [
        [3.0 * cell["A"] - 1.0 * cell["B"] + noise for noise in (-0.1, 0.1)]
        for cell in fraction.cells()
    ]
    by_effect = {fraction.text(one.effect): one for one in effects(fraction, scores)}
    assert {name: one.value for name, one in by_effect.items()} == pytest.approx(
        {"A": 6.0, "B": -2.0, "A × B": 0.0}, abs=1e-12
    )
    assert by_effect["A"].p_holm < by_effect["B"].p_holm < 0.05 < by_effect["A × B"].p_holm


def test_at_a_look_intervals_have_its_level_and_p_values_are_for_comparison_with_5_percent():
    fraction = Fraction(("A", "B"))
    scores = [
        [3.0 * cell["A"] - 0.3 * cell["B"] + noise for noise in (-1.1, 0.4, 0.8)]
        for cell in fraction.cells()
    ]
    once, look = effects(fraction, scores), effects(fraction, scores, level=0.0125)
    assert [one.p for one in look] == pytest.approx([min(1.0, 4 * one.p) for one in once])
    assert once[0].p < once[1].p < 0.6 < once[2].p <= 1.0 == look[2].p == look[2].p_holm
    assert [one.p_holm for one in look[:2]] == pytest.approx(
        [3 * look[0].p, min(1.0, 2 * look[1].p)]
    )
    for one, left in zip(look, (3, 2, 2), strict=True):
        half = stats.t.isf(0.0125 / left / 2, 8) * one.standard_error
        assert (one.low, one.high) == pytest.approx((one.value - half, one.value + half))


def test_effects_are_named_in_the_order_of_the_factors():
    fraction = Fraction(("B", "A", "C"))
    found = [fraction.text(one) for one in fraction.contrasts()]
    assert found == ["B", "A", "C", "B × A", "B × C", "A × C", "B × A × C"]
    assert fraction.text(frozenset("AB")) == "B × A"
    assert (fraction.resolution, fraction.basic, fraction.aliases(frozenset("A"))) == (
        None,
        ("B", "A", "C"),
        [],
    )


def test_one_score_in_each_cell_gives_effects_without_intervals():
    found = effects(Fraction(("A", "B")), [[1.0], [2.0], [3.0], [6.0]])
    assert [(one.value, one.low, one.p) for one in found] == [
        (3.0, None, None),
        (2.0, None, None),
        (1.0, None, None),
    ]


@pytest.mark.parametrize("rounding", [0.0, 1e-15])
def test_equal_scores_in_each_cell_show_no_noise_and_so_no_interval(rounding):
    found = effects(
        Fraction(("A", "B")), [[1.0, 1.0 + rounding], [1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]
    )
    assert [one.value for one in found] == pytest.approx([1.0, 0.0, 0.0])
    assert {(one.low, one.high, one.p, one.p_holm) for one in found} == {(None,) * 4}
