"""A metric over seeds, against the statistics module."""

import statistics

import pytest

from ablate.report.scores import Scores

VALUES = {1: 25.3, 2: 26.1, 3: 25.9, 5: 24.7}


@pytest.mark.parametrize("seeds", [(), (1,), (1, 2), (1, 2, 3, 5)])
def test_mean_and_spread_are_those_of_the_sample(seeds):
    values = [VALUES[seed] for seed in seeds]
    scores = Scores({seed: VALUES[seed] for seed in seeds})
    assert scores.n == len(values)
    assert scores.mean == (pytest.approx(statistics.mean(values)) if values else None)
    assert scores.std == (pytest.approx(statistics.stdev(values)) if len(values) > 1 else None)
    assert scores.as_json() == {"mean": scores.mean, "std": scores.std, "n": len(values), "values": values}


def test_a_difference_is_paired_over_the_seeds_that_both_have():
    row, base = Scores({1: 25.0, 2: 26.0, 4: 99.0}), Scores({2: 25.5, 1: 25.75, 3: 1.0})
    assert row.minus(base).by_seed == {1: -0.75, 2: 0.5}
    assert base.minus(row).mean == -row.minus(base).mean
    assert Scores({1: 2.0}).minus(Scores({2: 2.0})).as_json() == {"mean": None, "std": None, "n": 0, "values": []}


def test_what_all_seeds_share_has_no_part_in_the_spread_of_a_difference():
    base = Scores({1: 10.0, 2: 20.0, 3: 40.0})
    row = Scores({seed: value + 1 for seed, value in base.by_seed.items()})
    assert row.std == base.std > 10
    assert row.minus(base).std == 0.0
