"""Fake results of a small study."""

import pytest

from tests.report.fakes import SMALL, Fake, study_from


@pytest.fixture
def fake(tmp_path):
    """Make the results of a study, still empty, from its text and a selection of rows and seeds."""

    def fake(text=SMALL, **selection):
        return Fake(tmp_path / "results", study_from(tmp_path, text, **selection))

    return fake
