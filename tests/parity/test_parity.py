"""Our models equal independent implementations, given the same weights and inputs."""

import pytest

from tests.parity import formulas, t5
from tests.parity.row import LIMIT


@pytest.mark.parametrize("row", [*t5.ROWS, *formulas.ROWS], ids=str)
def test_our_numbers_equal_the_oracles(row):
    found = row.compare()
    assert found.difference <= LIMIT
    assert found.rms > 0.5  # the limit is small beside them
