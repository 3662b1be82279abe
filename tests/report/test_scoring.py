"""Stored translations are scored once, in what the study asks for, and again only where they have changed."""

import json
import sys

import pytest

from ablate.errors import StoreError
from ablate.metrics import sacrebleu
from ablate.report.scoring import score_missing
from ablate.store.score_cache import read_measured
from tests.report.fakes import CORPUS, SMALL, Fake, study_from

REFERENCES = ["the old dog sleeps near the river", "a king writes slowly a letter", "two birds sing in the tree"]
BASE = ["the old dog sleeps by the river", "a king slowly writes a letter", "two birds sing in a tree"]
ROW = ["the dog sleeps", "a king a letter", "two birds in"]


@pytest.fixture
def results(tmp_path):
    """Base and a row, translated with two seeds; the study wants BLEU and chrF."""
    results = Fake(tmp_path / "results", study_from(tmp_path, SMALL + "metrics: [bleu, chrf]\n", seeds="1,2"))
    results.corpus(["a", "b", "c"], REFERENCES)
    for label, lines in (("base", BASE), ("A h=1", ROW)):
        for seed in (1, 2):
            results.done(label, seed, 5.0, sacrebleu.score("bleu", lines, REFERENCES).value)
            results.translated(label, seed, lines)
    return results


def known(results, label, seed=1):
    return read_measured(results.folder(label, seed), results.row(label).decoding, CORPUS)


def test_what_is_translated_is_scored_in_every_metric_of_the_study_with_its_signature(results):
    heard = []
    score_missing(results.study, results.results, lambda done, of: heard.append((done, of)))
    assert heard == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    for name in ("bleu", "chrf"):
        expected = sacrebleu.measure(name, BASE, REFERENCES)
        found = known(results, "base")[name]
        assert (found["value"], found["signature"]) == (expected.value, expected.signature)
        assert found["resamples"] == pytest.approx(expected.resamples, abs=1e-6)
    row = results.table().rows[1]
    assert row.scores["chrf"].mean == sacrebleu.score("chrf", ROW, REFERENCES).value
    assert row.verdicts["bleu"].bootstrap.p < 1
    assert "chrF2" in results.table().signatures["chrf"][0] or "nc:6" in results.table().signatures["chrf"][0]


def test_what_is_scored_is_not_scored_again_and_nothing_is_loaded_for_it(results, monkeypatch):
    score_missing(results.study, results.results)
    monkeypatch.setitem(sys.modules, "ablate.metrics.sacrebleu", None)  # an import of it would fail
    score_missing(results.study, results.results)


def test_a_metric_that_is_added_is_added_to_those_that_are_known(results, tmp_path):
    score_missing(results.study, results.results)
    before = known(results, "base")
    score_missing(study_from(tmp_path, SMALL + "metrics: [ter]\n"), results.results)
    after = known(results, "base")
    assert after.keys() == {"bleu", "chrf", "ter"}
    assert {name: after[name] for name in before} == before


def test_other_translations_are_scored_anew(results):
    score_missing(results.study, results.results)
    results.translated("base", 1, REFERENCES)
    assert known(results, "base") == {}
    score_missing(results.study, results.results)
    assert known(results, "base")["chrf"]["value"] == 100.0


def test_a_damaged_memory_is_made_anew(results):
    score_missing(results.study, results.results)
    path = results.folder("base", 1).scores(results.row("base").decoding)
    content = path.read_bytes()
    for damage in (b"", b"{", b"[]", json.dumps({"of": 1}).encode()):
        path.write_bytes(damage)
        score_missing(results.study, results.results)
        assert path.read_bytes() == content


def test_results_without_translations_or_corpus_keep_the_bleu_that_they_have(results):
    for path in results.results.corpora.rglob("*.json"):
        path.unlink()
    score_missing(results.study, results.results)
    row = results.table().rows[1]
    assert (row.bleu.n, row.scores["chrf"].n, row.verdicts["bleu"].bootstrap) == (2, 0, None)


def test_translations_of_another_test_side_are_refused(results):
    results.translated("base", 1, BASE[:2])
    with pytest.raises(StoreError, match="has 2 sentences, and the test side of corpus 0123456789ab has 3"):
        score_missing(results.study, results.results)
