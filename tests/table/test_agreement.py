"""Agreement of a study's order of rows with the paper's."""

import json

import pytest

from ablate.study import read_study
from ablate.table.agreement import agreement_lines, agreements, contradictions
from ablate.table.render import as_json
from tests.report.fakes import STUDIES, Fake, study_from


@pytest.fixture
def table3(tmp_path):
    """Table 3 with one seed. `change` turns the paper's scores of a row into the study's."""

    def table3(change=lambda ppl, bleu: (ppl, bleu)):
        results = Fake(tmp_path / "results", read_study(STUDIES / "table3.yaml"))
        for row in results.table().rows:
            results.done(
                row.label,
                1,
                *change(row.recipe.paper.scores["ppl"], row.recipe.paper.scores["bleu"]),
            )
        return results.table()

    return table3


def taus(agreement):
    return {name: order.tau for name, order in agreement.orders.items()}


def test_the_papers_own_scores_agree_in_every_group(table3):
    found = agreements(table3())
    assert [(one.group, one.rows) for one in found] == [
        ("A", 5), ("B", 3), ("C", 8), ("D", 5), ("E", 2), ("big", 2), ("all", 20),
    ]  # fmt: skip
    assert all(
        taus(one) == pytest.approx({"bleu": 1, "ppl": 1}) for one in found if one.group != "E"
    )
    (e,) = [one for one in found if one.group == "E"]
    assert taus(e) == {"bleu": 1.0, "ppl": None}  # both perplexities of the paper are 4.92
    # Base and h=16 have 25.8 BLEU in the paper, so that row is on no side of base.
    assert [(one.orders["bleu"].same_side, one.orders["bleu"].sides) for one in found[:2]] == [
        (3, 3), (2, 2)
    ]  # fmt: skip


def test_reversed_scores_have_a_tau_of_minus_one(table3):
    found = agreements(table3(lambda ppl, bleu: (-ppl + 100, -bleu + 100)))
    assert all(one.orders["bleu"].tau == pytest.approx(-1) for one in found)
    assert all(one.orders["bleu"].same_side == 0 for one in found)


def test_one_seed_has_no_interval(table3):
    order = agreements(table3())[0].orders["bleu"]
    assert (order.low, order.high) == (None, None)


SCALED = """\
study: scaled
data: {corpus: toy, vocab_size: 200}
base: {N: 3, d_model: 64, d_ff: 128, h: 4, train_steps: 100}
seeds: [1, 2, 3, 4]
judge: [ppl, bleu]
rows:
  C: {each: {N: [1, 2, 4], d_model: [32, 128]}}
  D: {each: {dropout: [0.0]}}
"""
# The paper's rows: N 2, 4 and 8 of 6; d_model 256 and 1024 of 512; no dropout.
BLEU_OF_ROWS = {"N=1": 23.7, "N=2": 25.3, "N=4": 25.5, "d_model=32": 24.5, "d_model=128": 26.0}


@pytest.fixture
def scaled(tmp_path):
    """A study at another size than the paper's, with the paper's BLEU and a spread over seeds."""

    def scaled(spread, without_dropout=24.6):
        study = study_from(tmp_path, SCALED)
        results = Fake(tmp_path / f"results{spread}{without_dropout}", study)
        bleu = {f"C {label}": value for label, value in BLEU_OF_ROWS.items()}
        bleu |= {"base": 25.8, "D dropout=0.0": without_dropout}
        for place, (label, score) in enumerate(bleu.items()):
            for seed in study.seeds.rows:
                noise = spread * ((place * 3 + seed * (place + 2)) % 5 - 2)
                results.done(label, seed, 5.0 + noise, score + noise)
        return results.table()

    return scaled


def test_rows_of_another_size_are_beside_the_papers_with_the_same_factor(scaled):
    rows = scaled(0.01).by_label
    assert {label: row.recipe.paper.scores["bleu"] for label, row in rows.items()} == {
        "base": 25.8, "D dropout=0.0": 24.6, "C N=1": 23.7, "C N=2": 25.3, "C N=4": 25.5,
        "C d_model=32": 24.5, "C d_model=128": 26.0,
    }  # fmt: skip


def test_the_interval_of_tau_widens_with_the_noise_of_the_scores(scaled):
    (exact, *_), (noisy, *_) = agreements(scaled(0.001)), agreements(scaled(1.0))
    assert exact.orders["bleu"].tau == exact.orders["bleu"].low == exact.orders["bleu"].high == 1.0
    assert noisy.orders["bleu"].high - noisy.orders["bleu"].low > 0.5


def test_only_verdicts_on_the_other_side_of_base_contradict_the_paper(scaled):
    assert contradictions(scaled(0.01)) == []
    table = scaled(0.01, without_dropout=27.0)
    assert [(row.label, metric.name) for row, metric in contradictions(table)] == [
        ("D dropout=0.0", "bleu")
    ]
    assert "D dropout=0.0 (better by BLEU here)" in "".join(agreement_lines(table))
    assert contradictions(scaled(3.0, without_dropout=27.0)) == []  # within the noise


def test_a_row_that_is_worse_because_it_diverged_contradicts_the_paper(tmp_path):
    study = study_from(tmp_path, SCALED)
    results = Fake(tmp_path / "results", study)
    for place, row in enumerate(study.rows):
        for seed in study.seeds.rows:
            if row.label == "C d_model=128":  # better in the paper
                results.diverged(row.label, seed, 10, "loss")
            else:
                results.done(row.label, seed, 5.0 + (seed * place % 3) / 10, 25.0 + seed / 10)
    found = contradictions(results.table())
    assert [(row.label, metric.name) for row, metric in found] == [
        ("C d_model=128", "ppl"), ("C d_model=128", "bleu"),
    ]  # fmt: skip


def test_a_row_without_a_seed_of_base_is_in_no_order(tmp_path):
    study = study_from(tmp_path, SCALED)
    results = Fake(tmp_path / "results", study)
    results.done("base", 1, 5.0, 25.0)
    results.done("C N=1", 1, 6.0, 23.0)
    results.done("C N=2", 2, 4.0, 27.0)  # which base does not have yet
    (only,) = agreements(results.table())
    assert only.rows == 2
    assert only.orders["bleu"].sides == 1


def test_lines_warn_about_small_corpora_and_json_has_the_taus(table3):
    table = table3()
    lines = list(agreement_lines(table))
    assert "(A): BLEU +1.00, 3 of 3; PPL +1.00, 4 of 4." in lines
    assert "(E): BLEU +1.00, 1 of 1; PPL no order, 0 of 0." in lines
    assert "Small corpora and short trainings reverse effects of size" in lines[-1]
    content = json.loads(as_json(table))
    assert content["agreement"][0] == {
        "group": "A", "rows": 5,
        "tau_bleu": 1.0, "tau_bleu_low": None, "tau_bleu_high": None,
        "same_side_bleu": 3, "sides_bleu": 3,
        "tau_ppl": pytest.approx(1.0), "tau_ppl_low": None, "tau_ppl_high": None,
        "same_side_ppl": 4, "sides_ppl": 4,
    }  # fmt: skip
    assert content["rows"][1]["paper"] == {"ppl": 5.29, "bleu": 24.9}


def test_a_study_without_rows_of_the_paper_has_no_agreement(fake):
    table = fake(seeds="1", rows=["decoding*"]).all_done().table()
    assert agreements(table) == []
    assert list(agreement_lines(table)) == [
        "No row with scores has a counterpart in the paper, so there is no order to compare."
    ]
