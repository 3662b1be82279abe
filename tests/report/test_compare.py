"""Comparison of two rows."""

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from ablate.analysis.curves import curve_of, curves_of
from ablate.report.compare import (
    ItemDifference,
    compare_rows,
    largest_differences,
)
from ablate.report.compare_text import print_comparison
from ablate.table.curves import Curve
from ablate.tasks import Sample
from tests.cli.inside import inside
from tests.report.fakes import SMALL


def compared_rows(results, first, second):
    """The second row of a study compared with the first."""
    rows = map(results.row, (first, second))
    return compare_rows(results.outcome(), *rows, results.results)


def printed(found):
    """The text of a comparison."""
    with redirect_stdout(io.StringIO()) as out:
        print_comparison(found)
    return out.getvalue()


@pytest.fixture
def compared(fake):
    """Two rows other than base, with two seeds each and logs of different length."""
    results = fake(seeds="1,2")
    for seed, first, second in ((1, 20.0, 25.0), (2, 21.0, 26.5)):
        results.done("A h=1", seed, 6.0, first)
        results.done("A h=2", seed, 5.0, second)
        results.logged(
            "A h=1", seed, {"step": 50, "loss": 1.0}, {"step": 50, "dev_perplexity": 8.0 * seed}
        )
        results.logged(
            "A h=2", seed, *({"step": step, "dev_perplexity": 400.0 / step} for step in (50, 100))
        )
    return compared_rows(results, "A h=1", "A h=2")


def test_differing_settings_are_listed_with_both_values(compared):
    assert compared.settings == {"n_heads": (1, 2), "d_k": (64, 32), "d_v": (64, 32)}


def test_the_verdict_is_on_the_second_row_without_correction_for_several_rows(compared):
    verdict = compared.verdicts["bleu"]
    assert (verdict.n, verdict.mean) == (2, 5.25)
    assert verdict.p_holm == pytest.approx(verdict.seed_test.p)
    assert list(compared.verdicts) == ["ppl", "bleu"]


def test_a_row_and_its_base_have_the_verdict_of_the_table_beside_that_of_the_pair_alone(fake):
    results = fake()
    for seed in (1, 2, 3):
        results.done("base", seed, 5.0, 25.0 + seed / 10)
        results.done("A h=1", seed, 5.0, 24.0 - seed / 3)
        results.done("A h=2", seed, 5.0, 25.0 - seed / 20)
    of_table = results.table().by_label
    pair = compared_rows(results, "base", "A h=1")
    alone, ours = pair.verdicts["bleu"], of_table["A h=1"].verdicts["bleu"]
    assert pair.table_verdicts["bleu"] == ours
    assert ours.interval[0] < alone.interval[0]
    line = f"in the table, corrected for 4 rows: {ours.word}, {ours.metric.interval_text(*ours.interval)}"
    assert line in printed(pair)
    assert pair.as_json()["scores"]["bleu"]["in_table"]["low"] == ours.interval[0]
    other = compared_rows(results, "A h=2", "A h=1")
    assert other.table_verdicts == {}


def test_the_seeds_that_find_a_difference_are_given_for_the_pair_and_for_the_table(fake):
    results = fake()
    for seed, score in ((1, 25.0), (2, 21.0), (3, 24.0)):
        results.done("base", seed, 5.0, 25.0)
        results.done("A h=1", seed, 5.0, score)
        results.done("A h=2", seed, 5.0, 25.1 - seed / 20)
    pair = compared_rows(results, "base", "A h=1")
    alone, ours = pair.verdicts["bleu"], pair.table_verdicts["bleu"]
    assert alone.more_seeds != ours.more_seeds
    text = " ".join(printed(pair).split())
    assert (
        f"detecting a true difference as large as observed takes {alone.more_seeds_text})" in text
    )
    assert f"detecting a true difference as large as observed takes {ours.more_seeds_text} " in text


def test_a_single_evaluation_is_no_curve(compared):
    (_, *lines) = (
        printed(compared)
        .partition("of single checkpoints, from the first to the last evaluation")[2]
        .splitlines()
    )
    assert [line.split("  ")[0] for line in lines[: lines.index("")]] == ["A h=2"]
    points = dict.fromkeys((1, 2), ((100, 4.0),))
    once = replace(compared, curves=tuple(replace(c, by_seed=points) for c in compared.curves))
    assert "evaluation" not in printed(once)


def test_a_log_that_is_not_the_one_of_the_finished_run_has_no_curve_and_the_table_says_so(fake):
    results = fake(seeds="1").all_done()
    results.logged("base", 1, {"step": 1, "dev_perplexity": 4.0})
    outcome = results.outcome()
    assert curve_of(outcome, outcome.study.base, results.results).by_seed == {1: ((1, 4.0),)}
    assert not any("learning curve" in line for line in outcome.experiment.notes.faults)
    path = results.folder("base", 1).metrics
    path.write_text(path.read_text().replace("4.0", "3.0"))
    outcome = results.outcome()
    assert curve_of(outcome, outcome.study.base, results.results).by_seed == {}
    assert any(
        line.startswith(f"{path}: is damaged") and "its learning curve" in line
        for line in outcome.experiment.notes.faults
    )


def test_rows_with_the_same_runs_have_one_curve(fake):
    results = fake(seeds="1").all_done()
    for row in results.study.rows[:2]:
        results.logged(row.label, 1, {"step": 1, "dev_perplexity": 4.0})
    curves = curves_of(results.outcome(), results.results)
    assert [curve.label for curve in curves] == [
        "base",
        "A h=1",
        "A h=2",
        "D dropout=0.3",
    ]  # not decoding beam=1
    assert [bool(curve.by_seed) for curve in curves] == [True, True, False, False]


def test_the_mean_of_curves_is_taken_over_the_log_perplexity(compared):
    first, second = compared.curves
    assert first.by_seed == {1: ((50, 8.0),), 2: ((50, 16.0),)}
    assert first.mean == ((50, pytest.approx((8 * 16) ** 0.5)),)
    assert [step for step, _ in second.mean] == [50, 100]


def test_a_curve_without_a_common_step_has_no_mean():
    assert Curve("a", "a", {1: ((1, 2.0),), 2: ((2, 2.0),)}).mean == ()
    assert Curve("a", "a", {}).mean == ()


SENTENCES = ["a", "b", "c", "d", "e"]


def given(items):
    return [Sample(i + 1, (("source", SENTENCES[i].upper()),)) for i in items]


@pytest.mark.parametrize(("more_is_better", "order"), [(True, [2, 5, 3]), (False, [3, 2, 5])])
def test_sentences_are_ordered_from_the_largest_loss_to_the_largest_gain(more_is_better, order):
    scores = ([50.0, 90.0, 10.0, 50.0, 60.0], [50.0, 20.0, 80.0, 50.0, 50.0])
    texts = (SENTENCES, SENTENCES[::-1])
    found = largest_differences(texts, scores, 5, more_is_better, given)
    assert [one.number for one in found] == order
    assert all(one.sample == (("source", one.predictions[0].upper()),) for one in found)
    assert all(
        one.predictions == (SENTENCES[one.number - 1], SENTENCES[5 - one.number]) for one in found
    )
    assert [one.number for one in largest_differences(texts, scores, 1, True, given)] == [2, 3]


def test_text_and_json_have_settings_scores_and_differences(compared):
    text = printed(compared)
    for part in (
        "\nh        ",
        "20.5 ±0.7",
        "25.8 ±1.1",
        "+5.2",
        "95 % over 2 seeds",
        "No seed has predictions",
    ):
        assert part in text, part
    content = json.loads(json.dumps(compared.as_json()))
    assert content["rows"] == ["A h=1", "A h=2"]
    assert content["settings"][0] == {"field": "n_heads", "values": [1, 2]}
    assert content["scores"]["bleu"]["difference"]["mean"] == 5.25
    assert content["curves"][1] == {
        "row": "A h=2",
        "ppl": {"1": [[50, 8.0], [100, 4.0]], "2": [[50, 8.0], [100, 4.0]]},
    }


def test_a_label_keeps_a_sign_at_its_beginning(fake):
    text = SMALL.replace("rows:\n", "rows:\n  N: {set: {norm: rmsnorm}, label: +RMSNorm}\n")
    results = fake(text)
    heads = [
        line
        for line in printed(compared_rows(results, "base", "+RMSNorm")).splitlines()
        if line.startswith(("setting", "metric"))
    ]
    assert [line.split() for line in heads] == [
        ["setting", "base", "+RMSNorm"],
        ["metric", "base", "+RMSNorm", "difference"],
    ]


def test_a_prediction_that_repeats_itself_is_cut_far_beyond_its_reference(compared):
    given = (("source", "Ein Mann."), ("reference", "A man."))
    item = ItemDifference(1, given, ("A man.", "a man " * 500), (90.0, 1.0))
    found = replace(compared, seed=1, items=(item,))
    (line,) = [line for line in printed(found).splitlines() if "a man a man" in line]
    assert "2,880 more characters" in line
    assert len(line) < 200
    assert found.as_json()["sentences"][0]["translations"][1] == "a man " * 500


def test_a_score_of_a_block_stands_without_what_it_is_made_of(fake):
    text = SMALL.replace("vocab_size: 200", "tokenizer: bytes").replace(
        "study: small", "study: small\ntask: language-model"
    )
    text = text.replace("h: 4,", "h: 4, context: 16,").replace(
        "  decoding: {each: {beam: [1]}}\n", ""
    )
    made = fake(text)
    lines = ("nats=30.5 tokens=10 bytes=12 ctx=64 stride=64", "nats=31.5 tokens=10 bytes=12 ctx=64")
    item = ItemDifference(1, (("text", "One line,\nand another."),), lines, (4.3086, 4.5))
    found = compared_rows(made, "base", "A h=2")
    said = printed(replace(found, seed=1, items=(item,)))
    assert "One line, and another." in said
    assert "base   4.3086 bits/byte\n" in said
    assert "nats=" not in said
    assert "sentence" not in said


def test_missing_and_diverged_seeds_are_listed(fake):
    results = fake(seeds="1,2")
    results.done("A h=1", 1, 6.0, 20.0)
    results.done("A h=2", 1, 5.0, 25.0)
    results.diverged("A h=2", 2, 50, "the loss is not a finite number")
    found = compared_rows(results, "A h=1", "A h=2")
    shown = printed(found)
    assert "A h=1: 1 of 2 seeds done, the others pending\n" in shown
    assert (
        "A h=2: 1 of 2 seeds done; diverged at step 50: the loss is not a finite number\n" in shown
    )
    assert found.as_json()["states"] == [{1: "done", 2: "pending"}, {1: "done", 2: "diverged"}]


def test_the_scores_of_a_base_with_further_seeds_say_how_many_are_missing(fake):
    text = SMALL.replace("seeds: [1, 2, 3]", "seeds: {rows: 2, base: 5}")
    results = fake(text)
    for label, seed in (("base", 1), ("base", 2), ("base", 4), ("A h=1", 1), ("A h=1", 2)):
        results.done(label, seed, ppl=5.0 + seed / 10, bleu=25.0 + seed / 10)
    done = inside("compare", results.study.path, "base", "A h=1", "--results", results.results.root)
    assert "(3/5)" in done.out
    assert "(2/" not in done.out


def test_the_first_row_is_named_in_the_place_of_base_and_no_row_is_compared_with_itself(fake):
    results = fake(SMALL + "margin: 2.0\n")
    for seed, one, other in ((1, 25.0, 25.1), (2, 26.2, 26.1), (3, 24.0, 24.05)):
        results.done("A h=1", seed, 5.0, one)
        results.done("A h=2", seed, 5.1, other)
    given = [str(results.study.path), "--results", str(results.results.root)]
    done = inside("compare", *given, "A h=1", "A h=2")
    assert "BLEU: as good as A h=1 within ±2 BLEU\n" in done.out
    refused = inside("compare", *given, "A h=1", "*h=1")
    assert refused.refusal == '"A h=1" and "*h=1" are the same row, A h=1; give two rows'


def test_rows_with_different_vocabularies_are_not_compared_by_a_mean_over_tokens(fake, capsys):
    made = fake(SMALL.replace("h: [1, 2]", "vocab_size: [150, 200]")).all_done()
    found = compared_rows(made, "A vocab_size=150", "A vocab_size=200")
    assert list(found.verdicts) == ["ppl_char", "bleu"]
    print_comparison(found)
    assert "so PPL cannot compare the rows" in " ".join(capsys.readouterr().out.split())
