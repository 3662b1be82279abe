"""Equation 3, at the points where it has a closed form."""

import pytest

from ablate.training.schedule import learning_rate


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_the_rate_peaks_at_the_end_of_warm_up_at_the_papers_values(d_model, peak):
    rates = [learning_rate(step, d_model, 4000) for step in range(1, 20_000)]
    assert max(rates) == rates[3999] == pytest.approx(d_model**-0.5 * 4000**-0.5)
    assert rates[3999] == pytest.approx(peak, rel=1e-3)


@pytest.mark.parametrize("warmup", [1, 7, 4000])
def test_the_rate_grows_linearly_and_then_falls_as_the_inverse_root(warmup):
    peak = learning_rate(warmup, 13, warmup)
    for step in {1, 2, warmup // 2, warmup - 1, warmup} - {0}:
        if step <= warmup:
            assert learning_rate(step, 13, warmup) == pytest.approx(peak * step / warmup)
    for times in (1, 4, 9, 100):
        assert learning_rate(times * warmup, 13, warmup) == pytest.approx(peak / times**0.5)
