"""A row that `--rows` selects: its scores, verdict and look are those of the whole table."""

import json
import math

import numpy as np
import pytest
from scipy import stats

import ablate
from tests.cli.inside import inside
from tests.report.fakes import Fake, study_from

STUDY = """\
study: small
data: {corpus: toy, vocab_size: 200}
base: {N: 2, d_model: 64, d_ff: 128, h: 4, train_steps: 100}
seeds: SEEDS
rows:
  A: {each: {h: [1]}}
  D: {each: {dropout: [0.3, 0.0]}}
"""
# BLEU by row and seed: A is 0.6 below base with hardly any noise, which the other rows have.
SCORES = {
    "base": (25.0, 25.2, 25.1),
    "A h=1": (24.4, 24.6, 24.52),
    "D dropout=0.3": (25.5, 24.4, 25.3),
    "D dropout=0.0": (24.6, 25.4, 24.5),
}


def table(folder, *words):
    """`ablate table` of the study in a folder, as JSON; the rows by label."""
    words = ("table", folder / "study.yaml", "--results", folder / "results", *words)
    done = inside(*words, "--format", "json")
    assert (done.code, done.err) == (0, "")
    content = json.loads(done.out)
    return content, {row["row"]: row for row in content["rows"]}


def test_the_verdict_on_a_selected_row_has_the_noise_of_the_rows_that_are_left_out(tmp_path):
    fake = Fake(tmp_path / "results", study_from(tmp_path, STUDY.replace("SEEDS", "[1, 2, 3]")))
    for label, scores in SCORES.items():
        for seed, bleu in enumerate(scores, 1):
            fake.done(label, seed, ppl=5.0, bleu=bleu)
    # The two-way layout row x seed: 4 rows, 3 seeds, one pooled variance with 6 degrees of freedom.
    x = np.array(list(SCORES.values()))
    residuals = x - x.mean(1, keepdims=True) - x.mean(0) + x.mean()
    pooled = (residuals**2).sum() / 6
    t = -0.5933333333 / math.sqrt(2 * pooled / 3)
    _, whole = table(tmp_path)
    _, selected = table(tmp_path, "--rows", "A")
    assert list(selected) == ["base", "A h=1"]
    assert selected["A h=1"]["against_base"]["bleu"]["p"] == pytest.approx(2 * stats.t.cdf(t, 6))
    assert selected["A h=1"]["verdict"] == "cannot tell"  # "worse" by the noise of A and base only
    assert selected["A h=1"] == whole["A h=1"]
    # From Python, too.
    arguments = tmp_path / "study.yaml", tmp_path / "results"
    row = ablate.load(*arguments, rows="A").loc["A h=1"]
    assert row["delta_bleu_p"] == pytest.approx(2 * stats.t.cdf(t, 6))
    assert row["verdict"] == "cannot tell"
    # The plan tells what these verdicts can detect.
    plan = "plan", tmp_path / "study.yaml", "--results", tmp_path / "results", "--format", "json"
    assert power(inside(*plan, "--rows", "A")) == power(inside(*plan))


def power(done):
    """What a plan says of the power in BLEU."""
    content = json.loads(done.out)["power"]["bleu"]
    assert content["sd"] > 0
    return content


def test_a_selected_row_is_shown_at_the_look_of_the_whole_study(tmp_path):
    study = study_from(tmp_path, STUDY.replace("SEEDS", "{looks: [2, 4]}"))
    fake = Fake(tmp_path / "results", study)
    for row, worse in zip(study.rows, (0.0, 10.0, 0.3, 0.1), strict=True):
        for seed in (1, 2, 3, 4):
            fake.done(
                row.label, seed, ppl=5.0, bleu=25.0 - worse + 0.1 * (seed * len(row.label) % 3)
            )
    content, whole = table(tmp_path)
    part, selected = table(tmp_path, "--rows", "A")
    assert len(content["looks"]["judged"]) == 2  # A is worse at the first look, D at none
    assert part["looks"] == content["looks"]
    assert selected["A h=1"]["bleu"]["n"] == 4
    assert selected["A h=1"] == whole["A h=1"]


def test_a_selected_row_is_judged_before_the_rows_that_are_left_out_have_runs(tmp_path):
    study = study_from(tmp_path, STUDY.replace("SEEDS", "{looks: [2, 4]}"))
    fake = Fake(tmp_path / "results", study)
    for label, bleu in (("base", 25.0), ("A h=1", 15.0)):
        for seed in (1, 2):
            fake.done(label, seed, ppl=5.0, bleu=bleu + 0.1 * (seed * len(label) % 3))
    assert table(tmp_path)[0]["looks"]["judged"] == []
    part, selected = table(tmp_path, "--rows", "A")
    assert part["looks"]["stopped_early"]
    assert selected["A h=1"]["verdict"] == "worse"
