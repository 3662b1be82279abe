"""One finished study, shared by the tests: trained once, and copied for tests that change it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ablate.analysis import stages
from tests.end_to_end.studies import ablate, write_study
from tests.trained import Trained


@pytest.fixture(scope="session")
def calm(once):
    """The tiny study, trained without interruption."""

    def train(folder):
        done = ablate("run", write_study(folder), "--results", folder / "results")
        (folder / "said").write_text(done.stderr)
        (folder / "printed").write_text(done.stdout)

    folder = once("calm", train)
    return Trained(folder / "tiny.yaml", folder / "results", (folder / "said").read_text())


@pytest.fixture
def copy(calm, tmp_path):
    """A copy of the finished study."""
    shutil.copytree(calm.root, tmp_path / "results")
    return Trained(Path(shutil.copy(calm.file, tmp_path)), tmp_path / "results")


@pytest.fixture
def fresh(calm, tmp_path):
    """The tiny study with nothing trained; only the corpus is prepared."""
    shutil.copytree(calm.root / "corpora", tmp_path / "results" / "corpora")
    return Trained(Path(shutil.copy(calm.file, tmp_path)), tmp_path / "results")


@pytest.fixture
def computed(monkeypatch):
    """The stages of a study as often as it is computed which one is next."""
    computed, next_stage = [], stages.next_stage

    def compute(*arguments, **options):
        computed.append(next_stage(*arguments, **options))
        return computed[-1]

    monkeypatch.setattr(stages, "next_stage", compute)
    return computed


@pytest.fixture
def no_workers(monkeypatch):
    """Fail if a worker is started."""

    def refuse(slot, command):
        raise AssertionError("a worker was started")

    monkeypatch.setattr("ablate.launch.local._Worker", refuse)
