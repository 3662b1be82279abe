"""A small study, and results for it that are written by hand."""

import pytest

from tests.report.fakes import SMALL, Fake, study_from


@pytest.fixture
def fake(tmp_path):
    return Fake(tmp_path / "results", study_from(tmp_path, SMALL))


@pytest.fixture
def given(fake):
    """Arguments of every command: the study and its results root."""
    return fake.study.path, "--results", fake.results.root
