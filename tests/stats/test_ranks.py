"""Kendall's tau-b by hand, and as the correlation of signs that it is."""

import numpy as np
import pytest

from ablate.stats.ranks import kendall


@pytest.mark.parametrize(
    ("ours", "theirs", "tau"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 2, 4, 3], 4 / 6),
        ([1, 1, 2], [1, 2, 3], 2 / 6**0.5),
        ([1, 1], [1, 2], None),
        ([1], [1], None),
        ([], [], None),
    ],
)
def test_tau_is_as_counted_by_hand(ours, theirs, tau):
    found = kendall(ours, theirs)
    assert found == (None if tau is None else pytest.approx(tau))


def test_tau_b_is_the_correlation_of_the_signs_of_all_pairs():
    ours, theirs = [3.0, 1.0, 2.0, 2.0, 5.0, 5.0], [2.0, 1.0, 1.0, 3.0, 9.0, 9.0]
    a, b = (np.sign(np.subtract.outer(values, values)) for values in (ours, theirs))
    assert kendall(ours, theirs) == pytest.approx((a * b).sum() / ((a * a).sum() * (b * b).sum()) ** 0.5)
