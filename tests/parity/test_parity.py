"""Our models equal independent implementations, given the same weights and inputs."""

import pytest
import torch

from tests.parity import __main__ as command
from tests.parity.decoding import LIMIT as LONGEST_TRANSLATION
from tests.parity.decoding import SETTINGS, taught
from tests.parity.row import LIMIT, Row
from tests.parity.table import ROWS


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_our_numbers_equal_the_oracles(row):
    found = row.compare()
    assert found.difference <= LIMIT
    assert found.rms > 0.5  # the limit is small beside them


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("beam", [1, 4])
def test_the_compared_translations_are_diverse_and_mostly_complete(name, beam):
    translations = [hypothesis.tokens for hypothesis in taught(name).translated(beam)]
    assert len(set(map(tuple, translations))) > len(translations) / 2
    assert (
        sum(0 < len(tokens) < LONGEST_TRANSLATION for tokens in translations)
        > len(translations) / 2
    )


@pytest.mark.parametrize(("apart", "status"), [(LIMIT / 2, 0), (LIMIT * 2, 1), (float("nan"), 1)])
def test_the_command_prints_the_largest_difference_and_fails_above_the_limit(
    apart, status, monkeypatch, capsys
):
    near = Row("itself", "some numbers", lambda: [(torch.ones(7), torch.ones(7))])
    far = Row("itself", "other numbers", lambda: [(torch.ones(11), torch.ones(11) + apart)])
    monkeypatch.setattr(command, "ROWS", (near, far))
    assert command.main() == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["itself", "some", "numbers", "7", "1.00", "0.0e+00"]
    assert lines[2].startswith("itself  other numbers")
    assert lines[-1].startswith(f"{2 - status} of 2 within 1e-04")
