"""Power against the noncentral t distribution of scipy and statsmodels, and against the simulated
verdicts.
"""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from ablate.stats.power import MAX_SEEDS, POWER, detectable_difference, fewest_seeds
from benchmarks import verdicts as simulation


@pytest.mark.parametrize("n", [3, 5, 8])
def test_the_power_with_one_row_is_that_of_the_paired_t_test(n):
    """The sd of a difference is sqrt(2) times that of a score."""
    effect = detectable_difference(n, 1, 1.0) / math.sqrt(2)
    assert TTestPower().power(effect, n, 0.05) == pytest.approx(POWER, abs=0.02)
    critical = stats.t.isf(0.025, n - 1)
    # About two standard errors of the draws, which are always the same.
    assert stats.nct.sf(critical, n - 1, effect * math.sqrt(n)) == pytest.approx(POWER, abs=0.003)


@pytest.mark.parametrize(("rows", "n"), [(2, 2), (5, 5)])
def test_the_smallest_difference_matches_arrays_of_a_hundred_times_as_many_draws(rows, n):
    draw, count = np.random.default_rng(1), 400_000
    own = draw.chisquare(n - 1, (2, count)) / (n - 1)  # of the row and of base
    others = draw.chisquare((n - 1) * (rows - 1), count) / (n - 1)
    pooled = (own.sum(axis=0) + others) / (rows + 1)
    shared_t, own_t = stats.t.isf(0.025 / rows, (n - 1) * rows), stats.t.isf(0.025, n - 1)
    shared = shared_t * np.sqrt(np.maximum(own, pooled).sum(axis=0) / n)
    row, base = own
    alone = base + np.where(base > pooled, np.maximum(row, pooled), row)
    limit = np.maximum(shared, own_t * np.sqrt(alone / n))
    expected = np.quantile(limit - draw.normal(size=count) * math.sqrt(2 / n), POWER)
    assert detectable_difference(n, rows, 1.0) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("rows", "n", "sentences"), [(5, 3, 0.0), (13, 3, 0.0), (13, 5, 0.0), (13, 3, 1.0)]
)
def test_the_verdicts_find_the_detectable_difference_in_80_percent_of_simulated_studies(
    rows, n, sentences
):
    draw, studies = np.random.default_rng(rows + n), 4000
    scores = simulation.draw_study(draw, studies, rows, n, np.ones((1, 1, 1)))
    scores += draw.normal(size=(studies, rows + 1, 1)) * sentences / math.sqrt(2)
    scores[:, 1] += detectable_difference(n, rows, 1.0, sentences)
    found = simulation.judge(scores, sentences**2)[:, 0].mean()
    assert found == pytest.approx(POWER, abs=0.04)


@pytest.mark.parametrize(("n", "further"), [(3, 6), (4, 4), (5, 2)])
def test_further_seeds_of_base_find_the_detectable_difference_too(n, further):
    draw, studies, rows = np.random.default_rng(n), 4000, 13
    scores = simulation.draw_study(draw, studies, rows, n, np.ones((1, 1, 1)), 0.0)
    scores[:, 1] += detectable_difference(n, rows, 1.0, further=further)
    more = draw.normal(size=(studies, further))
    found = simulation.judge_with_further_seeds(scores, more)[:, 0].mean()
    assert found == pytest.approx(POWER, abs=0.05)


@pytest.mark.parametrize(("rows", "sizes", "n"), [(3, 3, 5), (5, 2, 3)])
def test_rows_of_several_sizes_find_the_detectable_difference_too(rows, sizes, n):
    draw, studies = np.random.default_rng(n), 4000
    scores = simulation.draw_study(draw, studies * sizes, rows, n, np.ones((1, 1, 1)))
    of_sizes = scores.reshape(studies, sizes, rows + 1, n)
    of_sizes[:, 0, 1] += detectable_difference(n, rows, 1.0, n_tests=rows * sizes)
    found = simulation.judge_sizes(of_sizes)[:, 0].mean()
    assert found == pytest.approx(POWER, abs=0.04)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("sd", [0.1, 10.0])
def test_the_smallest_difference_is_in_proportion_to_the_standard_deviation(rows, sd):
    assert detectable_difference(3, rows, sd, 0.5 * sd) == pytest.approx(
        sd * detectable_difference(3, rows, 1.0, 0.5)
    )


def seeds_needed(difference, *noise, **further):
    return fewest_seeds(1, lambda n: detectable_difference(n, *noise, **further) <= difference)


def test_the_smallest_number_of_seeds_is_found():
    n = seeds_needed(2.0, 13, 1.0)
    assert detectable_difference(n, 13, 1.0) <= 2.0 < detectable_difference(n - 1, 13, 1.0)
    assert seeds_needed(1000.0, 13, 1.0) == 2
    assert [seeds_needed(detectable_difference(n, 5, 1.0), 5, 1.0) for n in (3, 6, 7, 15)] == [
        3, 6, 7, 15,
    ]  # fmt: skip
    assert seeds_needed(0.5, 1, 0.01, sentences=5.0) is None
    assert detectable_difference(5, 4, 3.0, 1.5) == pytest.approx(
        3 * detectable_difference(5, 4, 1.0, 0.5)
    )


def test_no_study_can_have_the_seeds_that_a_smaller_difference_would_take():
    smallest = detectable_difference(MAX_SEEDS, 1, 1.0)
    assert detectable_difference(MAX_SEEDS + 1, 1, 1.0) < smallest
    assert seeds_needed(smallest, 1, 1.0) == MAX_SEEDS
    assert seeds_needed(smallest * (1 - 1e-9), 1, 1.0) is None
