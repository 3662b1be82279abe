"""The paired bootstrap on resamples small enough to count by hand."""

import random

import numpy as np
import pytest

from ablate.stats.bootstrap import paired_bootstrap
from ablate.stats.significance import LEVEL


def test_p_is_below_the_level_in_5_percent_of_equal_systems():
    """sacreBLEU's one-sided count, which judged both directions, gave 11 %."""
    draw = random.Random(1)
    studies = 400
    positives = 0
    for _ in range(studies):
        difference = draw.gauss(0, 1)
        resampled = [difference + draw.gauss(0, 1) for _ in range(400)]
        positives += paired_bootstrap(difference, [(resampled, [0.0] * 400)]).p < LEVEL
    assert abs(positives / studies - LEVEL) < 3 * (LEVEL * (1 - LEVEL) / studies) ** 0.5


@pytest.mark.parametrize("resamples", [99, 100, 400, 999, 1000])
def test_the_interval_contains_zero_exactly_if_p_is_not_below_the_level(resamples):
    draw, seen = random.Random(resamples), set()
    for step in range(60):
        difference = 1.5 + step / 60
        test = paired_bootstrap(
            difference,
            [([difference + draw.gauss(0, 1) for _ in range(resamples)], [0.0] * resamples)],
        )
        assert (test.low <= 0 <= test.high) == (test.p >= LEVEL)
        seen.add(test.p < LEVEL)
    assert seen == {True, False}


def test_equal_scores_on_every_resample_have_p_1():
    """sacreBLEU counts the resamples that exceed the difference, finds none, and gives 1 / 1001."""
    assert paired_bootstrap(0.0, [([20.0, 30.0], [20.0, 30.0])]).p == 1
    assert paired_bootstrap(1.0, [([20.0, 30.0], [10.0, 40.0])]).p == 1


@pytest.mark.parametrize("seeds", [1, 3])
def test_noise_and_p_match_arrays_of_seeds_by_resamples(seeds):
    """Base has another score on every resample, which cancels only in the difference by seed."""
    draw = np.random.default_rng(seeds)
    row, base = draw.normal(size=(2, seeds, 200)) + np.array([[[0.5]], [[0.0]]])
    resampled = (row - base).mean(axis=0)
    test = paired_bootstrap(0.4, [(list(row[seed]), list(base[seed])) for seed in range(seeds)])
    deviations = np.sort(abs(resampled - resampled.mean()))
    assert test.std == pytest.approx(resampled.std())
    assert test.p == pytest.approx(((deviations >= 0.4).sum() + 1) / 201)
    assert (test.low, test.high) == pytest.approx((0.4 - deviations[-10], 0.4 + deviations[-10]))


def test_with_few_resamples_the_interval_reaches_to_the_largest_deviation():
    """With fewer than 19 resamples, p cannot fall below 5 %."""
    test = paired_bootstrap(10.0, [([1.0, 2.0, 3.0, 6.0], [0.0] * 4)])  # deviations -2, -1, 0, 3
    assert (test.low, test.high, test.p) == (7.0, 13.0, 1 / 5)
