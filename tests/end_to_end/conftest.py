"""One finished study, shared by the tests: trained once, and copied for tests that change it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from ablate.analysis import stages
from ablate.store import Results, RunFolder
from ablate.study import Selection, Study, read_study
from tests.cli.inside import Done, inside
from tests.end_to_end.studies import ablate, write_study


@dataclass(frozen=True)
class Trained:
    """A study, its results root, and the output of the command that trained it."""

    file: Path
    root: Path
    said: str = ""

    @property
    def study(self) -> Study:
        return read_study(self.file)

    def run(self, *words: object) -> Done:
        """Call `ablate run` in this process."""
        return inside("run", self.file, "--results", self.root, *words)

    def ask(self, verb: str, *words: object) -> Done:
        """Call another command in this process."""
        return inside(verb, self.file, "--results", self.root, *words)

    def folder(self, label: str, seed: int = 1) -> RunFolder:
        """The folder of a row's run."""
        study = read_study(self.file, Selection(seeds=str(seed)))
        row = next(row for row in study.rows if row.label == label)
        return Results(self.root).run(study.runs_of(row)[0].id)


@pytest.fixture(scope="session")
def calm(once):
    """The tiny study, trained without interruption."""

    def train(folder):
        done = ablate("run", write_study(folder), "--results", folder / "results")
        (folder / "said").write_text(done.stdout)

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
