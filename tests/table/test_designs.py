"""Effects of designs from results: closed forms, what is missing, and every format."""

import json
from dataclasses import replace

import pytest
from scipy import stats

from ablate.page.study_page import study_page
from ablate.stats.factorial import Estimate
from ablate.stats.metrics import BITS_PER_BYTE
from ablate.table.designs import EffectEstimate, _differences, _Pair, design_effects
from ablate.table.render import as_json, markdown
from ablate.table.scores import Scores
from ablate.table.table import TableRow
from tests.report.fakes import Fake, study_from

HEAD = """\
study: small
data: {corpus: toy, vocab_size: 200}
base: {N: 2, d_model: 64, d_ff: 128, h: 4, train_steps: 100}
seeds: [1, 2]
rows:
"""
FACTORIAL = (
    HEAD
    + "  F: {factorial: {norm_position: [post, pre], activation: [relu, gelu], dropout: [0.1, 0.3]}}\n"
)
PARTS = "{norm_position: pre, dropout: 0.3}"
PATHS = f"{HEAD}  P: [{{add-one-in: {PARTS}}}, {{leave-one-out: {PARTS}}}]\n"


def score(row):
    """BLEU of a row: pre-norm gives 3, dropout takes 2, and both together give 1 more."""
    pre, dropout = row.config.norm_position == "pre", row.config.dropout == 0.3
    return 20.0 + 3.0 * pre - 2.0 * dropout + 1.0 * (pre and dropout)


def finish(fake, rows=None):
    for row in fake.study.rows:
        for seed, noise in ((1, -0.5), (2, 0.5)):
            if rows is None or row.label in rows:
                fake.done(row.label, seed, ppl=5.0, bleu=score(row) + noise)
    return fake


def by_name(effects, metric="bleu"):
    return dict(zip(effects.names, effects.by_metric[metric], strict=True))


def test_the_effects_of_a_factorial_are_those_that_the_scores_were_made_of(fake):
    (found,) = design_effects(finish(fake(FACTORIAL)).table())
    values = {name: one.value for name, one in by_name(found).items()}
    assert values == pytest.approx(
        {"norm_position": 3.5, "activation": 0.0, "dropout": -1.5, "norm_position × activation": 0.0,
         "norm_position × dropout": 0.5, "activation × dropout": 0.0, "norm_position × activation × dropout": 0.0},
        abs=1e-9,
    )  # fmt: skip
    # Each cell has scores at -0.5 and +0.5: s^2 = 1/2 with 8 degrees of freedom. Of seven effects
    # one has a smaller p value.
    one, t = by_name(found)["dropout"], stats.t.isf(0.05 / 6 / 2, 8)
    assert one.interval[1] - one.interval[0] == pytest.approx(
        2 * t * (4 * 0.5 / 16) ** 0.5, rel=1e-6
    )
    assert by_name(found)["norm_position"].word(fake(FACTORIAL).table().main_metric) == "better"


def test_effects_wait_for_every_cell_and_a_diverged_run_is_noted(fake):
    results = fake(FACTORIAL)
    last = results.study.rows[-1].label
    finish(results, {row.label for row in results.study.rows[:-1]})
    (found,) = design_effects(results.table())
    assert found.by_metric == {}
    assert "1 of 8 cells have no score in this table; effects need all of them." in found.notes
    results.diverged(last, 1, 7, "the loss exploded")
    results.done(last, 2, ppl=5.0, bleu=22.0)
    (found,) = design_effects(results.table())
    assert "1 run diverged and has no score in these effects." in found.notes
    assert found.by_metric["bleu"][0].interval is not None


def test_parts_are_compared_with_base_and_with_the_whole(fake):
    (found,) = design_effects(finish(fake(PATHS)).table())
    assert {name: one.value for name, one in by_name(found).items()} == pytest.approx(
        {"norm_position, added to base": 3.0, "dropout, added to base": -2.0, "norm_position, with all other parts": 4.0,
         "dropout, with all other parts": -1.0, "all parts": 2.0}
    )  # fmt: skip
    assert "The single additions sum to +1.0 BLEU; all parts together give +2.0." in found.notes
    assert found.title == "P: add-one-in and leave-one-out"
    backwards = f"{HEAD}  P: [{{leave-one-out: {PARTS}}}, {{add-one-in: {PARTS}}}]\n"
    (found,) = design_effects(finish(fake(backwards)).table())
    assert "The single additions sum to +1.0 BLEU; all parts together give +2.0." in found.notes


def test_each_step_of_a_cumulative_path_is_compared_with_the_one_before(tmp_path):
    """With the scores of three parts and an interaction, whose steps sum to the whole."""
    parts = "{norm_position: pre, activation: gelu, dropout: 0.3}"
    study = study_from(tmp_path, f"{HEAD}  P: {{cumulative: {parts}}}\n")
    (found,) = design_effects(finish(Fake(tmp_path / "results", study)).table())
    values = {name: one.value for name, one in by_name(found).items()}
    assert values == pytest.approx(
        {"norm_position, after the parts before": 3.0, "activation, after the parts before": 0.0,
         "dropout, after the parts before": -1.0, "all parts": 2.0}
    )  # fmt: skip
    assert found.title == "P: cumulative"
    assert found.notes[0].startswith("After the parts before: ")
    assert not any("sum" in note for note in found.notes)


def test_steps_of_a_cumulative_path_have_the_p_of_a_paired_t_test_and_of_the_verdict(tmp_path):
    study = study_from(tmp_path, f"{HEAD}  P: {{cumulative: {PARTS}}}\n")
    fake = Fake(tmp_path / "results", study)
    bleu = {"base": (20.0, 21.0), "P up to norm_position": (22.0, 24.0), "P all": (25.5, 26.0)}
    for label, scores in bleu.items():
        for seed, score in enumerate(scores, 1):
            fake.done(label, seed, ppl=5.0, bleu=score)
    table = fake.table()
    first, second, whole = by_name(design_effects(table)[0]).values()
    assert (first.value, second.value, whole.value) == pytest.approx((2.5, 2.75, 5.25))
    assert first.p == table.by_label["P up to norm_position"].verdicts["bleu"].p_adjusted
    assert whole.p == table.by_label["P all"].verdicts["bleu"].p_adjusted
    assert second.p == pytest.approx(stats.ttest_1samp([3.5, 2.0], 0).pvalue)


def test_a_factorial_without_spread_over_seeds_has_no_intervals_and_says_why(fake):
    results = fake(FACTORIAL)
    for row in results.study.rows:
        for seed in (1, 2):
            results.done(row.label, seed, ppl=5.0, bleu=score(row))
    (found,) = design_effects(results.table())
    assert {
        (one.interval, one.p, one.word(results.table().main_metric))
        for one in by_name(found).values()
    } == {(None, None, "")}
    assert (
        "No spread over the seeds of any cell: the error is unknown, and with it intervals and p "
        "values." in found.notes
    )


def test_an_interval_reaches_no_loss_below_0():
    told = Estimate((True,), 0.1, mean_at_low_level=4.0, low=-1.0, high=1.2, p_holm=0.9)
    wide = replace(told, low=-16.0, high=16.2)
    assert (
        EffectEstimate.of_factorial(told, BITS_PER_BYTE).text(BITS_PER_BYTE)
        == "+0.1000 [-1.0000, +1.2000]"
    )
    assert EffectEstimate.of_factorial(wide, BITS_PER_BYTE).interval == (-4.0, 16.2)


def test_the_interval_of_a_part_left_out_reaches_no_loss_below_0():
    scores = {"whole": (4.0, 5.5), "without": (4.9, 4.0)}  # of two seeds: differences -0.9 and 1.5
    rows = {}
    for label, of_seeds in scores.items():
        by_metric = {"bpb": Scores(dict(enumerate(of_seeds)))}
        rows[label] = TableRow(label, "", "base", runs=(), scores=by_metric)
    pair = _Pair("part", rows["whole"], rows["without"])
    (contrast,) = _differences([pair], BITS_PER_BYTE, 0.05)
    assert contrast.value == pytest.approx(0.3)
    assert contrast.interval == (-4.45, pytest.approx(15.547, abs=1e-3))


def test_effects_are_in_markdown_json_and_the_page_and_only_for_designs(fake):
    results = finish(fake(PATHS))
    table = results.table()
    text = markdown(table, against_paper=False)
    assert "### P: add-one-in and leave-one-out" in text
    assert (
        "| norm_position, with all other parts | +4.0 |" in text
    )  # no interval: the seeds show no spread
    (design,) = json.loads(as_json(table))["designs"]
    assert design["effects"][2]["bleu"] == {"value": 4.0, "low": None, "high": None, "p_holm": None}
    html = study_page(results.outcome(), results.results, [], [])
    assert '<h2 id="design-1">P: add-one-in and leave-one-out</h2>' in html
    assert "effect on BLEU (test)" in html
    plain = fake(f"{HEAD}  A: {{each: {{h: [2]}}}}\n").all_done().table()
    assert "designs" not in json.loads(as_json(plain))
    assert "###" not in markdown(plain, against_paper=False)
