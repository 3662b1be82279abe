"""A small study whose results are written by hand."""

import pytest

from tests.report.fakes import SMALL, Fake, study_from


@pytest.fixture
def fake(tmp_path):
    """A study's text, and what the command line picks of it, to its results to be."""

    def fake(text=SMALL, **selection):
        return Fake(tmp_path / "results", study_from(tmp_path, text, **selection))

    return fake
