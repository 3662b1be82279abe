"""A shared corpus, and a separate results root for each test."""

import shutil

import pytest

from ablate.data.corpus import Corpus
from ablate.store import Results
from tests.attention.runs import corpus_in, opened


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    return corpus_in(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def results(prepared, tmp_path):
    """A results root with the corpus alone."""
    shutil.copytree(prepared[0].corpora, tmp_path / "results" / "corpora")
    return Results(tmp_path / "results")


@pytest.fixture
def corpus(prepared, results):
    return Corpus(results.corpora / prepared[1].id)


@pytest.fixture
def run(results, corpus):
    """An encoder-decoder of 2 layers and 3 heads, loaded."""
    return opened(results, corpus)
