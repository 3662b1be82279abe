"""Samples are spread evenly over the test set, with the first seed of every row that has
predictions.
"""

from dataclasses import replace

from ablate.page.page import Example
from ablate.page.study_page import samples, study_page
from ablate.table.table import Table


def test_samples_have_the_input_the_reference_and_the_prediction_of_every_finished_row(whole):
    found = samples(whole.outcome(), whole.results, whole.prepared_corpus(), 2)
    assert [sample.number for sample in found] == [1, 3]
    assert found[1].texts == (("source", "d"), ("reference", "two birds sing in the tree"))
    rows = [row.label for row in whole.table().rows]
    assert [
        row for row, _ in found[1].predictions
    ] == rows  # row D diverged with its second seed only
    assert dict(found[1].predictions)["A h=2"] == "two xx sing in the tree"


def test_a_task_whose_predictions_are_no_texts_to_read_has_no_samples(whole, monkeypatch):
    monkeypatch.setattr(type(whole.study.task), "predicts_texts", False)
    assert samples(whole.outcome(), whole.results, whole.prepared_corpus(), 2) == []


def test_a_task_may_give_other_texts_than_a_translation(whole):
    sample = Example(7, (("prompt", "a & b"),), (("base", "a & b"), ("A h=1", "")))
    text = study_page(whole.outcome(), whole.results, [], [sample])
    assert "Sample 7: a &amp; b" in text
    assert (
        '<tr data-row="base"><th scope="row">base</th><td>a &amp; b <span class="note">(same as '
        "the prompt)" in text
    )
    assert '<td><span class="note">(empty)</span></td>' in text


def test_scores_of_samples_have_the_digits_of_their_metric(whole, monkeypatch):
    outcome = whole.outcome()
    bleu = replace(outcome.study.task.metrics["bleu"], digits=4)
    monkeypatch.setattr(Table, "item_metric", property(lambda self: bleu))
    (sample,) = samples(outcome, whole.results, whole.prepared_corpus(), 1)
    assert {len(score.partition(".")[2]) for score in sample.scores} == {4}
    text = study_page(outcome, whole.results, [], [sample])
    assert f'<td class="number">{sample.scores[0]}</td>' in text


def test_samples_have_no_scores_in_a_probe_which_has_items_of_its_own(whole, monkeypatch):
    metric = replace(whole.study.task.metrics["bleu"], is_probe=True)
    monkeypatch.setattr(Table, "item_metric", property(lambda self: metric))
    (sample,) = samples(whole.outcome(), whole.results, whole.prepared_corpus(), 1)
    assert (sample.scores, sample.metric) == ((), "")
