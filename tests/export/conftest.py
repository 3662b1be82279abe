"""One study with both architectures, trained once, and each of its runs exported for both
libraries.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from ablate.store import Results
from ablate.study import read_study, runs_of
from ablate.workers.inference import LoadedRun, load_run
from tests.cli.inside import inside
from tests.export.small import STUDY

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported; prevents network access

SENTENCES = 200


@dataclass(frozen=True)
class Trained:
    """A finished run, with test sentences as text and as token ids."""

    root: Path
    id: str
    opened: LoadedRun
    text: list[str]
    ids: list[list[int]]

    @property
    def tokenizer(self):
        return self.opened.corpus.tokenizer


@pytest.fixture(scope="session")
def runs(once):
    """The study's runs by their architecture."""

    def train(folder):
        (folder / "study.yaml").write_text(STUDY)
        words = ("--results", folder / "results", "--device", "cpu")
        assert inside("run", folder / "study.yaml", *words).code == 0

    folder = once("exported", train)
    root, found = folder / "results", {}
    for run in runs_of(read_study(folder / "study.yaml")):
        opened = load_run(Results(root).run(run.id), Results(root))
        text = opened.corpus.text("test", "source")[:SENTENCES]
        found[run.config.architecture] = Trained(
            root, run.id, opened, text, opened.corpus.tokenizer.encode(text)
        )
    return found


@pytest.fixture(scope="session")
def translator(runs):
    """The trained encoder-decoder."""
    return runs["encoder-decoder"]


@pytest.fixture(scope="session")
def continuer(runs):
    """The trained decoder-only model."""
    return runs["decoder-only"]


@pytest.fixture(scope="session")
def tokenizer(translator):
    """The toy corpus' vocabulary."""
    return translator.tokenizer


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Return a function that exports a trained run through the command line and returns the
    folder.
    """
    made = {}

    def export(trained, target):
        if (trained.id, target) not in made:
            folder = tmp_path_factory.mktemp("there") / "exported"
            done = inside(
                "export", trained.id[:8], "--out", folder, "--to", target, "--results", trained.root
            )
            assert (done.code, done.err) == (0, "")
            made[trained.id, target] = folder
        return made[trained.id, target]

    return export
