"""Scores over seeds, against values computed by hand."""

import math

import pytest

from ablate.table.scores import Scores, mean_and_std


@pytest.mark.parametrize(
    ("values", "expected_mean", "expected_std"),
    [
        ([], None, None),
        ([25.0], 25.0, None),
        ([24.0, 26.0], 25.0, math.sqrt(2)),  # deviations -1 and 1: (1 + 1) / (2 - 1)
        ([1.0, 3.0, 5.0, 11.0], 5.0, math.sqrt(56 / 3)),  # deviations -4, -2, 0, 6
    ],
)
def test_mean_and_sample_standard_deviation(values, expected_mean, expected_std):
    scores = Scores(dict(enumerate(values)))
    assert (scores.n, scores.mean) == (len(values), expected_mean)
    assert scores.std == (None if expected_std is None else pytest.approx(expected_std, rel=1e-15))
    assert scores.as_json() == {
        "mean": scores.mean,
        "std": scores.std,
        "n": len(values),
        "values": values,
    }


def test_sums_do_not_lose_small_values():
    scores = Scores(dict(enumerate([1e16, 1.0, -1e16, 2.0])))
    assert scores.mean == 0.75  # a running sum in double precision gives 0.5
    assert Scores(dict(enumerate([1e9 + 1, 1e9 + 2, 1e9 + 3]))).std == 1.0


def test_logarithms_are_averaged_and_compared_where_a_metric_says_so():
    row, base = (Scores(values, is_log=True) for values in ({1: 2.0, 2: 8.0}, {1: 1.0, 2: 2.0}))
    assert row.mean == pytest.approx(4.0)
    assert row.std == pytest.approx(math.log(4) / math.sqrt(2))
    assert row.minus(base).by_seed == pytest.approx({1: math.log(2), 2: math.log(4)})
    assert row.minus(base).mean == pytest.approx(math.log(row.mean / base.mean))
    assert not row.minus(base).is_log  # differences are on the scale
    assert row.as_json()["values"] == [2.0, 8.0]
    assert mean_and_std(row, 2, 2) == "4.00 ×÷2.665"


def test_difference_is_paired_over_the_seeds_that_both_have():
    row, base = Scores({1: 25.0, 2: 26.0, 4: 99.0}), Scores({2: 25.5, 1: 25.75, 3: 1.0})
    assert row.minus(base).by_seed == {1: -0.75, 2: 0.5}
    assert base.minus(row).mean == -row.minus(base).mean
    assert Scores({1: 2.0}).minus(Scores({2: 2.0})).as_json() == {
        "mean": None,
        "std": None,
        "n": 0,
        "values": [],
    }


def test_variance_that_all_rows_share_cancels_in_a_paired_difference():
    base = Scores({1: 10.0, 2: 20.0, 3: 40.0})
    row = Scores({seed: value + 1 for seed, value in base.by_seed.items()})
    assert row.std == base.std > 10
    assert row.minus(base).std == 0.0
