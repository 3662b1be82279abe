"""Rows with different data: separate vocabularies, several vocabulary sizes, and a share of the
training split.
"""

from __future__ import annotations

import json

import pytest

from ablate.store import Results
from tests.cli.inside import inside
from tests.data.small import Files

STUDY = """\
study: data
data:
  {corpus: files, direction: en-de, train: train, dev: dev, test: test, folder: text,
   vocab_size: 80, vocabulary: separate}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, tied_embeddings: decoder, epochs: 1, batch_tokens: 512, warmup_steps: 20}
rows:
  data: {each: {train_fraction: [0.25]}}
  V: {each: {vocab_size: [60]}}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of a finished study, and its table as JSON."""
    folder = tmp_path_factory.mktemp("data")
    Files(folder / "text", folder / "results/corpora").write()
    (folder / "data.yaml").write_text(STUDY)
    run = inside("run", folder / "data.yaml", "--results", folder / "results")
    assert run.code == 0, run.err + run.out
    table = inside(
        "table", folder / "data.yaml", "--results", folder / "results", "--format", "json"
    )
    return folder, {row["row"]: row for row in json.loads(table.out)["rows"]}


def results_of(folder):
    root = Results(folder / "results")
    return [(root.run(id).read_result(), root) for id in root.run_ids()]


def test_an_epoch_with_train_fraction_a_quarter_has_a_quarter_of_the_steps(done):
    _, rows = done
    assert abs(rows["base"]["steps"] / 4 - rows["data train_fraction=0.25"]["steps"]) <= 1


def test_each_vocabulary_size_is_a_corpus_and_train_fraction_shares_one(done):
    folder, _ = done
    assert len({result.corpus for result, _ in results_of(folder)}) == 2


def test_a_run_with_two_vocabularies_translates_and_is_not_exported(done):
    folder, _ = done
    result, root = results_of(folder)[0]
    asked = inside("predict", result.id, "--results", root.root, stdin=b"the dog\n")
    assert asked.code == 0, asked.err
    assert asked.out.count("\n") == 1
    refused = inside(
        "export", result.id, "--out", folder / "out", "--to", "huggingface", "--results", root.root
    )
    assert refused.code == 2
    assert "data.vocabulary=separate" in refused.err or "tied_embeddings" in refused.err
