"""Effective speed-up: the crossing of two learning curves, by step, tokens and FLOPs."""

import math
from dataclasses import replace

import pytest
from scipy import stats

from ablate.table.curves import Curve, SpeedUp, cost_at, speed_up, speed_ups


def falling(rate, *, steps=(100, 200, 300, 400), start=6.0):
    """A curve whose loss falls linearly: a loss of `start` - rate * step."""
    return tuple((step, math.exp(start - rate * step)) for step in steps)


def curve(row, rates, flops=10.0, tokens=7):
    by_seed = {seed: falling(rate) for seed, rate in rates.items()}
    costs = {}
    for axis, per_step in {"tokens": tokens, "flops": flops}.items():
        for seed, points in by_seed.items():
            costs[axis, seed] = {step: per_step * step for step, _ in points}
    return Curve(row, "base" if row == "base" else "A", by_seed, costs)


@pytest.mark.parametrize("rate", [0.002, 0.0025, 0.004, 0.008])
def test_with_a_linear_loss_the_ratio_is_that_of_the_slopes(rate):
    base = curve("base", {1: 0.002})
    assert speed_up(curve("A", {1: rate}), base, "step").mean == pytest.approx(rate / 0.002)


def test_cost_per_step_scales_the_ratio_along_each_axis():
    base, row = (
        curve("base", {1: 0.002}),
        curve("A", {1: 0.004}, flops=40.0, tokens=14),
    )
    found = speed_ups([base, row])["A"]
    assert {axis: one.mean for axis, one in found.items()} == pytest.approx(
        {"step": 2.0, "tokens": 1.0, "flops": 0.5}
    )


def test_the_interval_is_students_of_the_logarithms_over_seeds():
    base = curve("base", dict.fromkeys((1, 2, 3), 0.002))
    found = speed_up(curve("A", {1: 0.0022, 2: 0.003, 3: 0.0026}), base, "step")
    logs = [math.log(ratio) for ratio in (1.1, 1.5, 1.3)]
    low, high = stats.t.interval(0.95, 2, loc=sum(logs) / 3, scale=stats.sem(logs))
    assert found.interval == pytest.approx((math.exp(low), math.exp(high)))
    assert found.mean == pytest.approx((1.1 * 1.5 * 1.3) ** (1 / 3))


def test_the_mean_curve_is_that_of_the_loss_at_the_steps_of_every_seed():
    row = Curve("A", "A", {1: ((100, 8.0), (200, 2.0)), 2: ((100, 2.0), (200, 0.5), (300, 0.1))})
    assert dict(row.mean) == pytest.approx({100: 4.0, 200: 1.0})


def test_a_base_that_overfits_is_as_fast_as_itself():
    points = ((100, 9.0), (200, 3.0), (300, 2.0), (400, 3.5))
    base = Curve("base", "base", {1: points})
    assert speed_up(base, base, "step").mean == 1.0
    twice = Curve("A", "A", {1: tuple((step / 2, value) for step, value in points)})
    assert speed_up(twice, base, "step").mean == pytest.approx(2.0)


@pytest.mark.parametrize("points", [((400, 3.0),), ((100, 2.0), (200, 3.0))])
def test_a_base_that_has_its_final_score_at_its_first_evaluation_gives_no_ratio(points):
    base = Curve("base", "base", {1: points})
    fast = Curve("A", "A", {1: ((400, 1.0),)})
    assert speed_up(fast, base, "step") == SpeedUp()
    # The row itself may: then the ratio is at least this.
    assert speed_up(fast, curve("base", {1: 0.002}), "step").mean == 1.0


def test_a_row_that_never_reaches_the_score_has_no_ratio():
    base = curve("base", {1: 0.004, 2: 0.002})
    found = speed_up(curve("A", {1: 0.003, 2: 0.003}), base, "step")
    assert (found.mean, found.interval, found.missed) == (None, None, 1)
    assert found.text == "not reached with 1 of 2 seeds"
    assert SpeedUp().text == ""


def test_seeds_with_which_a_row_diverges_miss_the_score_also_before_any_evaluation():
    base = curve("base", {1: 0.002, 2: 0.002, 3: 0.002})
    row = replace(curve("A", {1: 0.004, 2: 0.004}), diverged=frozenset({2, 3}))
    found = speed_up(row, base, "step")
    assert (found.ratios, found.mean, found.missed) == ({1: pytest.approx(2.0)}, None, 2)
    assert found.text == "not reached with 2 of 3 seeds"
    single = replace(base, by_seed={3: ((400, 1.0),)})
    assert speed_up(row, single, "step") == SpeedUp()


def test_seeds_that_have_not_ended_and_seeds_with_which_base_diverges_do_not_count():
    base = curve("base", dict.fromkeys((1, 2, 3), 0.002))
    row = curve("A", {1: 0.004, 2: 0.001, 3: 0.001})
    fast = {1: pytest.approx(2.0)}
    late = frozenset({2, 3})
    assert speed_up(replace(row, unfinished=late), base, "step") == SpeedUp(fast)
    assert speed_up(row, replace(base, unfinished=late), "step") == SpeedUp(fast)
    assert speed_up(row, replace(base, diverged=late), "step") == SpeedUp(fast)


def test_at_the_first_evaluation_the_cost_is_not_extrapolated():
    assert cost_at([(100, 5.0), (200, 4.0)], 6.0) == 100
    assert cost_at([(100, 5.0), (200, 4.0)], 3.9) is None
    assert cost_at([(100, 5.0), (200, 5.5), (300, 4.0)], 4.0) == 300


def test_an_axis_whose_cost_is_not_known_is_empty():
    base, row = curve("base", {1: 0.002}), Curve("A", "A", {1: falling(0.004)})
    assert [speed_up(row, base, axis).text for axis in ("step", "tokens", "flops", "seconds")] == [
        "2.00", "", "", "",
    ]  # fmt: skip
    assert row.over("flops").mean == ()
    assert row.over("flops").points == {}


def test_a_row_with_another_vocabulary_has_no_speed_up():
    base, row = curve("base", {1: 0.002}), curve("row", {1: 0.004})
    assert speed_ups([base, row]).keys() == {"row"}
    assert not speed_ups([base, replace(row, vocab_size=base.vocab_size + 1)])
