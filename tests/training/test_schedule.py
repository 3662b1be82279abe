"""The rate, against equation 3 and against the closed forms of the schedules that others use."""

import math

import pytest

from ablate.config.resolve import resolve_row
from ablate.training.schedule import SCHEDULES, learning_rate

WARMUP, LAST = (
    10,
    110,
)  # as far from warm-up to the end as a hundred steps, the last of which is not at 0


def rate(step, last=None, **settings):
    return learning_rate(resolve_row(settings), step, last)


def rates(schedule, **settings):
    """By step, with a peak of 1."""
    config = resolve_row(
        {"schedule": schedule, "learning_rate": 1.0, "warmup_steps": WARMUP, **settings}
    )
    return {step: learning_rate(config, step, LAST) for step in range(1, LAST + 2)}


# --- the paper's ---


@pytest.mark.parametrize("warmup", [1, 7, 4000])
@pytest.mark.parametrize("d_model", [14, 512])
def test_every_rate_is_that_of_equation_3(warmup, d_model):
    config = resolve_row({"d_model": d_model, "n_heads": 2, "warmup_steps": warmup})
    for step in {1, 2, 3, warmup // 2, warmup - 1, warmup, warmup + 1, 4 * warmup, 100_000} - {0}:
        expected = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        for last in (None, 5000):
            assert learning_rate(config, step, last) == pytest.approx(expected, rel=1e-12)


# --- others ---


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_goes_up_in_a_line_to_its_peak_at_the_end_of_warm_up(schedule):
    found = rates(schedule)
    assert [found[step] for step in range(1, WARMUP + 1)] == pytest.approx(
        [step / WARMUP for step in range(1, 11)]
    )
    assert max(found.values()) == found[WARMUP] == 1.0


def test_a_constant_rate_stays_at_its_peak():
    found = rates("constant")
    assert {found[step] for step in range(WARMUP, LAST + 1)} == {1.0}


def test_a_linear_rate_falls_by_equal_steps_to_0_one_step_after_the_last():
    found = rates("linear")
    falls = [found[step] - found[step + 1] for step in range(WARMUP, LAST + 1)]
    assert falls == pytest.approx(
        [1 / 101] * 101
    )  # 101 steps from the peak at step 10 to 0 at step 111
    assert found[LAST] > 0
    assert found[LAST + 1] == 0.0


def test_a_cosine_rate_is_half_a_period_from_the_peak_to_0_one_step_after_the_last():
    last = WARMUP + 59  # 60 steps from the peak to 0, so that thirds and halves fall on steps
    config = resolve_row({"schedule": "cosine", "learning_rate": 1.0, "warmup_steps": WARMUP})
    at = {
        share: learning_rate(config, WARMUP + round(60 * share), last)
        for share in (0, 1 / 3, 1 / 2, 2 / 3, 1)
    }
    assert list(at.values()) == pytest.approx(
        [1, 3 / 4, 1 / 2, 1 / 4, 0]
    )  # (1 + cos of 0, 60, 90, 120, 180) / 2
    assert learning_rate(config, last, last) == pytest.approx((1 - math.cos(math.pi / 60)) / 2)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_rate_that_falls_is_never_0_while_there_are_steps_to_make(schedule):
    for warmup, last in ((1, 1), (5, 5), (5, 6), (7, 3)):
        config = resolve_row({"schedule": schedule, "learning_rate": 1.0, "warmup_steps": warmup})
        assert all(learning_rate(config, step, last) > 0 for step in range(1, last + 1))
        if last >= warmup:
            assert learning_rate(config, last + 1, last) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_configured_peak_scales_the_papers_schedule(schedule):
    settings = {"schedule": schedule, "d_model": 64, "warmup_steps": 100}
    for step in (1, 50, 100, 150, 400):
        papers, own = rate(step, 400, **settings), rate(step, 400, learning_rate=0.003, **settings)
        assert own == pytest.approx(papers * 0.003 * 6400**0.5)
        assert rate(step, 400, learning_rate=6400**-0.5, **settings) == papers


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_a_falling_rate_ends_at_its_share_of_the_peak(schedule):
    whole, floored = rates(schedule), rates(schedule, final_rate=0.25)
    assert floored[LAST + 1] == pytest.approx(0.25)
    for step in range(WARMUP, LAST + 2):
        assert floored[step] == pytest.approx(0.25 + 0.75 * whole[step])


def test_wsd_stays_at_its_peak_and_then_falls_in_a_line():
    found = rates("wsd", decay_fraction=0.5)
    assert {found[step] for step in range(WARMUP, 56)} == {1.0}
    assert [found[step] for step in (55, 83, LAST + 1)] == pytest.approx([1.0, 0.5, 0.0])
    assert rates("wsd", decay_fraction=1.0) == pytest.approx(rates("linear"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": "wsd", "decay_fraction": 0.04}, "decay_fraction=0.04 of train_steps=10 is"),
        ({"batch_growth": 4, "batch_growth_fraction": 0.05}, "batch_growth=4 within .* no step"),
        ({"batch_growth": 8, "batch_growth_fraction": 0.1}, "batch_growth=8 within .* no step"),
    ],
)
def test_a_share_of_the_steps_that_is_no_step_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        resolve_row({"train_steps": 10, "warmup_steps": 2, "batch_tokens": 1000, **fields})


def test_a_share_of_one_step_is_allowed():
    fields = {"train_steps": 10, "warmup_steps": 2, "batch_tokens": 1000}
    config = resolve_row({**fields, "schedule": "wsd", "decay_fraction": 0.1, "learning_rate": 1.0})
    assert [learning_rate(config, step, 10) for step in (9, 10)] == [1.0, 0.5]
    grown = resolve_row({**fields, "batch_growth": 8, "batch_growth_fraction": 0.3})
    assert grown.batch_stages == [(0, 1, 8), (1, 2, 4), (2, 3, 2)]
