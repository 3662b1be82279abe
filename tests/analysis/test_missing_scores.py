"""Stored predictions are scored once in each metric of the study, and again if they change."""

import json
import math
import sys

import pytest

from ablate.analysis.missing_scores import read_scored_runs, score_missing
from ablate.analysis.outcome import outcome_of
from ablate.metrics import sacrebleu
from ablate.store.records import ScoreCache
from ablate.store.score_cache import read_measurements
from ablate.study import runs_of
from ablate.table.latex import latex
from ablate.table.render import as_json, markdown
from tests.records import CORPUS, change
from tests.report.fakes import SMALL, Fake, study_from

REFERENCES = [
    "the old dog sleeps near the river",
    "a king writes slowly a letter",
    "two birds sing in the tree",
]
BASE = [
    "the old dog sleeps by the river",
    "a king slowly writes a letter",
    "two birds sing in a tree",
]
ROW = ["the dog sleeps", "a king a letter", "two birds in"]


@pytest.fixture
def results(tmp_path):
    """Base and a row, translated with two seeds; the study wants BLEU and chrF."""
    results = Fake(
        tmp_path / "results", study_from(tmp_path, SMALL + "metrics: [bleu, chrf]\n", seeds="1,2")
    )
    results.corpus(["a", "b", "c"], REFERENCES)
    for label, lines in (("base", BASE), ("A h=1", ROW)):
        for seed in (1, 2):
            results.done(
                label, seed, 5.0, sacrebleu.measure_translations("bleu", lines, REFERENCES).value
            )
            results.translated(label, seed, lines)
    return results


def cached(results, label, seed=1):
    folder, id = results.folder(label, seed), results.row(label).decoding
    return read_measurements(folder, id, folder.read_result().decodings[id])


def test_predictions_are_scored_in_every_metric_of_the_study(results):
    calls = []
    read_scored_runs(
        results.planned, results.results, lambda done, total: calls.append((done, total))
    )
    assert calls == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    for name in ("bleu", "chrf"):
        assert cached(results, "base")[name] == sacrebleu.measure_translations(
            name, BASE, REFERENCES
        )
    row = results.table().rows[1]
    assert row.scores["chrf"].mean == sacrebleu.measure_translations("chrf", ROW, REFERENCES).value
    assert row.verdicts["bleu"].bootstrap.p < 1
    assert (
        "chrF2" in results.table().experiment.signatures["chrf"][0]
        or "nc:6" in results.table().experiment.signatures["chrf"][0]
    )


def test_with_all_scores_cached_no_scorer_is_loaded(results, monkeypatch):
    score_missing(results.planned, results.results)
    monkeypatch.setitem(sys.modules, "ablate.metrics.sacrebleu", None)  # an import of it would fail
    score_missing(results.planned, results.results)


def test_a_metric_that_is_added_is_added_to_those_that_are_cached(results, tmp_path):
    score_missing(results.planned, results.results)
    before = cached(results, "base")
    more = study_from(tmp_path, SMALL + "metrics: [ter]\n")
    score_missing(runs_of(more), results.results)
    after = cached(results, "base")
    assert after.keys() == {"bleu", "chrf", "ter"}
    assert {name: after[name] for name in before} == before


def test_the_brevity_penalty_of_older_results_is_computed_from_their_translations(results):
    table = results.table()
    assert "brevity_penalty" not in json.loads(as_json(table))["rows"][0]["bleu"]
    assert not [line for line in table.experiment.notes.remarks if "brevity" in line]
    score_missing(results.planned, results.results)
    cache = results.folder("A h=1", 1).scores(results.row("A h=1").decoding)
    metrics = ScoreCache.read(cache).metrics
    older = {name: score.model_copy(update={"parts": {}}) for name, score in metrics.items()}
    change(ScoreCache, cache, metrics=older)
    score_missing(results.planned, results.results)
    table = results.table()
    base, row, *_ = json.loads(as_json(table))["rows"]
    # of 19 words, base has 19 and the row 10
    assert base["bleu"]["brevity_penalty"]["values"] == [1.0, 1.0]
    assert row["bleu"]["brevity_penalty"]["mean"] == pytest.approx(math.exp(1 - 19 / 10))
    (remark,) = [line for line in table.experiment.notes.remarks if "brevity" in line]
    assert remark == "Short translations lower BLEU (brevity penalty below 0.98): A h=1 (0.407)."
    assert f"{remark} A larger alpha makes" in markdown(table, against_paper=False)
    # The advice is not for a paper, whose readers cannot change the study.
    text = latex(table, whole_legend=True)
    assert "A h=1 (0.407)." in text
    assert "larger alpha" not in text


def test_short_translations_are_no_remark_on_a_row_with_larger_faults(results):
    """Without the penalty, the row has more than half of this base, and less than half of the
    references.
    """
    for lines, n_remarks in ((BASE, 1), (REFERENCES, 0)):
        for seed in (1, 2):
            bleu = sacrebleu.measure_translations("bleu", lines, REFERENCES).value
            results.done("base", seed, 5.0, bleu)
            results.translated("base", seed, lines)
        score_missing(results.planned, results.results)
        table = results.table()
        base, row, *_ = table.rows
        penalty = math.exp(1 - 19 / 10)
        is_close = row.scores["bleu"].mean / penalty > base.scores["bleu"].mean / 2
        assert is_close == (n_remarks == 1)
        remarks = [line for line in table.experiment.notes.remarks if "brevity" in line]
        assert len(remarks) == n_remarks


def test_changed_predictions_are_scored_again(results):
    score_missing(results.planned, results.results)
    results.translated("base", 1, REFERENCES)
    assert cached(results, "base") == {}
    score_missing(results.planned, results.results)
    assert cached(results, "base")["chrf"].value == 100.0


def test_a_damaged_cache_is_replaced(results):
    score_missing(results.planned, results.results)
    path = results.folder("base", 1).scores(results.row("base").decoding)
    content = path.read_bytes()
    for damage in (b"", b"{", b"[]", json.dumps({"of": 1}).encode()):
        path.write_bytes(damage)
        score_missing(results.planned, results.results)
        assert path.read_bytes() == content


def test_without_the_corpus_the_scores_of_the_result_are_used(results):
    for path in results.results.corpora.rglob("*.json"):
        path.unlink()
    score_missing(results.planned, results.results)
    row = results.table().rows[1]
    assert (row.scores["bleu"].n, row.scores["chrf"].n, row.verdicts["bleu"].bootstrap) == (
        2,
        0,
        None,
    )


def test_predictions_for_another_number_of_items_are_refused(results):
    results.translated("base", 1, BASE[:2])
    (fault,) = score_missing(results.planned, results.results)
    assert "has 2 lines, and the test split of corpus 0123456789ab has 3 items" in fault
    table = outcome_of(results.planned, results.results, [fault]).table
    assert fault in table.experiment.notes.faults
    assert [table.rows[i].scores["chrf"].n for i in (0, 1)] == [
        1,
        2,
    ]  # only the cells of this run are empty


def test_nothing_is_scored_from_references_that_are_not_those_of_the_corpus(results):
    path = results.results.corpora / CORPUS / "test.target.txt"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"the", b"teh"))
    (fault,) = score_missing(results.planned, results.results)
    assert fault == (
        f"{path}: is damaged or missing (its SHA-256 is not the one written); `ablate run` makes "
        f"it again"
    )
    assert cached(results, "base") == {}
    path.write_bytes(whole)
    assert score_missing(results.planned, results.results) == []
    assert cached(results, "base")["chrf"] == sacrebleu.measure_translations(
        "chrf", BASE, REFERENCES
    )


@pytest.mark.parametrize("damage", ["other words", "other lines", "gone", "folder"])
def test_nothing_is_scored_from_predictions_that_are_not_those_of_the_run(results, damage):
    path = results.folder("base", 1).predictions(results.row("base").decoding)
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_text(
            "".join(f"{line}\n" for line in (["x"] * 3 if damage == "other words" else ["x"]))
        )
    (fault,) = score_missing(results.planned, results.results)
    assert fault.startswith(f"{path}: is ")
    assert fault.endswith("; `ablate run` decodes it again")
    table = outcome_of(results.planned, results.results, [fault]).table
    assert [table.rows[i].scores["chrf"].n for i in (0, 1)] == [1, 2]
    assert [line for line in table.experiment.notes.faults if str(path) in line] == [fault]
    assert table.rows[0].scores["bleu"].n == 2  # the run measured it before


def test_scores_that_an_older_version_took_from_unchecked_text_are_dropped(results):
    score_missing(results.planned, results.results)
    folder, id = results.folder("base", 1), results.row("base").decoding
    cache = ScoreCache.read(folder.scores(id))
    wrong = {name: one.model_copy(update={"value": 1.0}) for name, one in cache.metrics.items()}
    old = cache.model_copy(
        update={"source": cache.source.model_copy(update={"format": 1}), "metrics": wrong}
    )
    old.write(folder.scores(id))
    assert cached(results, "base") == {}


def test_a_corpus_is_found_by_one_rule_here_and_in_the_shared_folder(
    results, tmp_path, monkeypatch
):
    """A root that was filled before ABLATE_CORPORA was set keeps its corpora, for every command."""
    monkeypatch.setenv("ABLATE_CORPORA", str(tmp_path / "shared"))
    assert results.results.has_corpus(CORPUS)
    assert score_missing(results.planned, results.results) == []
    assert cached(results, "base")["chrf"] == sacrebleu.measure_translations(
        "chrf", BASE, REFERENCES
    )
    (tmp_path / "shared").mkdir()
    results.results.corpus(CORPUS).rename(tmp_path / "shared" / CORPUS)
    (results.results.root / "corpora" / CORPUS).mkdir()  # without a manifest it is not a corpus
    assert results.results.corpus(CORPUS) == tmp_path / "shared" / CORPUS
