"""The paired bootstrap on resamples small enough to count by hand."""

from ablate.stats.bootstrap import paired_bootstrap


def test_the_mean_over_seeds_is_taken_on_each_resample():
    """Differences of the mean: -2 and 0 for one seed, 0 and -2 for the other, have the means -1 and -1."""
    test = paired_bootstrap(-1.0, [([1.0, 3.0], [3.0, 3.0]), ([3.0, 1.0], [3.0, 3.0])])
    assert (test.low, test.high, test.n) == (-1.0, -1.0, 2)
    assert test.p == 1 / 3  # no resample is further from the mean than the difference is from zero


def test_the_interval_omits_2_5_percent_of_the_resamples_on_each_side():
    values = [float(value) for value in range(1000)]
    test = paired_bootstrap(500.0, [(values, [0.0] * 1000)])
    assert (test.low, test.high) == (25.0, 974.0)


def test_equal_scores_on_every_resample_have_p_1():
    """sacreBLEU counts the resamples that exceed the difference, finds none, and gives 1 / 1001."""
    assert paired_bootstrap(0.0, [([20.0, 30.0], [20.0, 30.0])]).p == 1
    assert paired_bootstrap(0.0, [([20.0, 30.0], [30.0, 20.0])]).p < 1
