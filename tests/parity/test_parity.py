"""Our models equal independent implementations, given the same weights and inputs."""

import pytest

from tests.parity import decoding, formulas, t5
from tests.parity.row import LIMIT

ROWS = (*t5.ROWS, *formulas.ROWS, *decoding.ROWS)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_our_numbers_equal_the_oracles(row):
    found = row.compare()
    assert found.difference <= LIMIT
    assert found.rms > 0.5  # the limit is small beside them


@pytest.mark.parametrize("beam", [1, 4])
def test_the_compared_translations_are_diverse_and_mostly_complete(beam):
    translations = [hypothesis.tokens for hypothesis in decoding.taught().translated(beam)]
    complete = [tokens for tokens in translations if 0 < len(tokens) < decoding.LIMIT]
    assert len(set(map(tuple, translations))) > len(translations) / 2
    assert len(complete) > len(translations) / 2
