"""The content of the table."""

import json
import statistics

import pytest

from ablate.analysis.experiment import paper_row
from ablate.paper import TABLE_3
from ablate.study import Selection, read_study
from ablate.table.render import as_json
from tests.records import SIGNATURE
from tests.report.fakes import STUDIES

ONE_SEED = {"seeds": "1"}


def best(table, metric):
    """The best mean in a metric, by its name."""
    return table.best(table.experiment.metrics[metric])


def by_label(table):
    return {row.label: row for row in table.rows}


def test_json_has_the_keys_of_the_contract(fake):
    content = json.loads(as_json(fake().all_done().table()))
    assert {"study", "metrics", "rows", "signatures"} <= content.keys()
    assert content["study"] == "small"
    assert content["metrics"] == ["ppl", "bleu"]
    # The columns begin with perplexity, and the verdicts are by BLEU.
    assert content["judge"] == ["bleu"]
    assert [row["verdict"] for row in content["rows"]] == [
        row["against_base"]["bleu"]["verdict"] if row["against_base"] else None
        for row in content["rows"]
    ]
    for row in content["rows"]:
        assert {
            "row", "verdict", "group", "changed", "params", "steps", "state", "ppl", "bleu",
            "delta_bleu",
        } <= row.keys()  # fmt: skip
        for metric in ("ppl", "bleu", "delta_bleu"):
            assert row[metric].keys() == {"mean", "std", "n", "values"}
    assert [row["row"] for row in content["rows"]] == [
        "base", "A h=1", "A h=2", "D dropout=0.3", "decoding beam=1",
    ]  # fmt: skip
    assert content["rows"][1]["changed"] == {"n_heads": 1, "d_k": 64, "d_v": 64}
    assert content["rows"][1]["group"] == "A"
    assert content["signatures"]["bleu"] == [SIGNATURE]


def test_json_has_every_digit_of_every_value_in_the_order_of_the_seeds(fake):
    results = fake()
    values = [25.000000000000004, 1 / 3, 26.7]
    for seed, value in zip((3, 1, 2), (values[2], values[0], values[1]), strict=True):
        results.done("base", seed, 5.0, value)
    row = json.loads(as_json(results.table()))["rows"][0]
    assert row["bleu"]["values"] == values
    assert row["bleu"]["mean"] == statistics.fmean(values)
    assert row["bleu"]["std"] == statistics.stdev(values)
    assert row["state"] == "done"


def test_rows_that_differ_in_decoding_share_a_run_and_have_their_own_scores(fake):
    results = fake(**ONE_SEED)
    results.done("base", 1, 5.0, 25.0)
    rows = by_label(results.table())
    assert (rows["base"].state, rows["decoding beam=1"].state) == ("done", "pending")
    results.done("decoding beam=1", 1, 5.0, 24.0)
    rows = by_label(results.table())
    assert (rows["base"].scores["bleu"].mean, rows["decoding beam=1"].scores["bleu"].mean) == (
        25.0,
        24.0,
    )
    assert rows["decoding beam=1"].state == "done"


def test_a_row_that_lacks_a_seed_is_never_best_and_leaves_the_best_open_where_it_is_better(fake):
    results = fake()
    for seed in (1, 2, 3):
        results.done("base", seed, 5.0, 25.0)
        results.done("A h=1", seed, 5.5, 24.0)
    for seed in (1, 2):
        results.done("A h=2", seed, 1.0, 1.0)
    table = results.table()
    assert (best(table, "ppl"), best(table, "bleu")) == (None, 25.0)
    results.diverged("A h=2", 3, 7, "the loss exploded")
    assert best(results.table(), "ppl") == pytest.approx(5.0)


def test_the_note_of_a_row_says_why_it_is_not_finished(fake):
    results = fake(**ONE_SEED)
    results.at("base", 1, 40, alive=True)
    results.at("A h=1", 1, 60, alive=False)
    results.failed("A h=2", 1, "out of luck")
    results.diverged("D dropout=0.3", 1, 50, "the loss exploded to 31.4 nats a token")
    rows = by_label(results.table())
    assert {label: row.state for label, row in rows.items()} == {
        "base": "running",
        "A h=1": "interrupted",
        "A h=2": "failed",
        "D dropout=0.3": "diverged",
        "decoding beam=1": "running",
    }
    assert rows["base"].note == "running at step 40"
    assert rows["A h=1"].note == "interrupted at step 60"
    assert "failed" in rows["A h=2"].note
    assert (
        rows["D dropout=0.3"].note == "diverged at step 50: the loss exploded to 31.4 nats a token"
    )
    assert rows["D dropout=0.3"].scores["ppl"].n == 0


def test_the_note_of_a_row_with_several_seeds_counts_those_that_are_done(fake):
    results = fake()
    results.done("base", 1, 5.0, 25.0)
    results.done("base", 2, 5.0, 25.0)
    results.done("A h=1", 1, 5.0, 25.0)
    results.at("A h=1", 3, 7, alive=False)
    rows = by_label(results.table())
    assert rows["base"].note == "2 of 3 seeds done, the others pending"
    assert rows["A h=1"].note == "1 of 3 seeds done; interrupted at step 7"
    assert rows["A h=2"].note == "0 of 3 seeds done, the others pending"


def test_a_failure_of_one_seed_is_the_state_of_a_row_that_no_other_seed_is_running(fake):
    results = fake()
    results.done("base", 1, 5.0, 25.0)
    results.failed("base", 3, "out of luck")
    assert by_label(results.table())["base"].state == "failed"
    results.at("base", 2, 5, alive=True)
    assert by_label(results.table())["base"].state == "running"


def test_steps_are_those_made_if_training_ended_early(fake):
    results = fake(**ONE_SEED)
    results.done("base", 1, 5.0, 25.0, steps=70)
    rows = by_label(results.table())
    assert (rows["base"].recipe.steps, rows["A h=1"].recipe.steps) == (70, 100)


def test_damaged_progress_reports_do_not_matter_to_finished_runs(fake):
    results = fake(**ONE_SEED).all_done()
    for row in results.study.rows:
        results.folder(row.label, 1).progress.write_text("{")
    assert {row.state for row in results.table().rows} == {"done"}


def test_every_row_of_table3_has_its_counterpart_in_the_paper():
    study = read_study(STUDIES / "table3.yaml")
    assert [paper_row(TABLE_3, row, study.base) for row in study.rows] == list(TABLE_3.rows)


def papers(study):
    found = {row.label: paper_row(TABLE_3, row, study.base) for row in study.rows}
    return {
        label: paper and (paper.scores["ppl"], paper.scores["bleu"])
        for label, paper in found.items()
    }


def test_a_row_has_a_counterpart_only_if_it_changes_the_same_fields_by_the_same_factors(tmp_path):
    (tmp_path / "small.yaml").write_text(
        "study: small\ndata: {corpus: toy, vocab_size: 200}\nbase: {N: 2, d_model: 64, d_ff: 256, h: 4}\n"
        "rows:\n  A: {each: {h: [1]}}\n  B: {each: {d_k: [2]}}\n  C: {each: {N: [1], d_ff: [64]}}\n"
        "  D: {each: {dropout: [0.3], label_smoothing: [0.0]}}\n"
        "  E: {each: {positional_encoding: [learned, none]}}\n"
    )
    found = papers(read_study(tmp_path / "small.yaml"))
    assert found["base"] == (4.92, 25.8)
    assert found["D label_smoothing=0.0"] == (4.67, 25.3)
    assert found["E positional_encoding=learned"] == (4.92, 25.7)
    none = (
        "A h=1",
        "B d_k=2",
        "C N=1",
        "C d_ff=64",
        "D dropout=0.3",
        "E positional_encoding=none",
    )
    assert [found[label] for label in none] == [None] * 6


OTHER_CHANGES = """\
study: other
data: {corpus: toy, vocab_size: 200}
base: {d_model: 64, d_ff: 128, h: 8, train_steps: 100, learning_rate: 0.004}
rows:
  same: {set: {h: 1}}
  wide: {set: {d_model: 128, learning_rate: 0.0028}}
  wide at another rate: {set: {d_model: 128, learning_rate: 0.002}}
  written out: {set: {h: 16, d_k: 4, d_v: 4}}
  more: {each: {beam: [1], batch_tokens: [4096], warmup_steps: [10], train_steps: [50]}}
  both: {grid: {h: [1], beam: [2], train_steps: [100]}}
  less: {set: {h: 1, train_steps: 50}}
  big: {set: {preset: big, train_steps: 300}}
  two: {set: {dropout: 0.0, label_smoothing: 0.0}}
  one head size: {set: {d_k: 16, d_v: 32}}
"""


def test_a_row_with_any_other_change_has_no_counterpart(tmp_path):
    (tmp_path / "other.yaml").write_text(OTHER_CHANGES)
    found = papers(read_study(tmp_path / "other.yaml", Selection()))
    has = {label: score for label, score in found.items() if score}
    assert has == {
        "base": (4.92, 25.8),
        "same h=1": (5.29, 24.9),
        "wide d_model=128 learning_rate=0.0028": (4.66, 26.0),
        "written out h=16 d_k=4 d_v=4": (4.91, 25.8),
    }
