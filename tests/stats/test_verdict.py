"""Verdicts: which word and which sentence a row gets."""

import random

import pytest

from ablate.config.metrics import PPL, TRANSLATION_METRICS
from ablate.stats.verdict import PairedScores, verdicts

BLEU, TER = (next(metric for metric in TRANSLATION_METRICS if metric.name == name) for name in ("bleu", "ter"))


def by_seed(*values):
    return dict(enumerate(values, 1))


def resampled(row, base, spread=0.3, count=1000):
    """Scores of a row and of base on resampled test sets, with common noise."""
    draw = random.Random(0)
    noise = [draw.gauss(0, 2) for _ in range(count)]
    return [row + n + draw.gauss(0, spread) for n in noise], [base + n for n in noise]


def one(metric=BLEU, **scores):
    (verdict,) = verdicts(metric, [PairedScores(**scores)])
    return verdict


def test_a_significant_difference_is_worse_or_better_by_the_direction_of_the_metric():
    down = by_seed(-2.0, -2.1, -1.9)
    assert one(BLEU, differences=down).word == "worse"
    assert one(PPL, differences=down).word == "better"
    assert one(TER, differences=down).word == "better"
    assert one(BLEU, differences=by_seed(2.0, 2.1, 1.9)).word == "better"


def test_an_insignificant_difference_reports_the_minimum_detectable_one():
    verdict = one(differences=by_seed(-1.0, 1.2, -0.5))
    assert verdict.word == "within noise"
    assert (
        verdict.text
        == f"within noise (smallest difference this study could see: {verdict.minimum_detectable:.1f} BLEU)"
    )
    assert abs(verdict.mean) < verdict.minimum_detectable


def test_one_seed_cannot_tell_and_reports_the_bootstrap_apart():
    assert one(differences=by_seed(-5.0)).text == "cannot tell: one seed shows no spread"
    resamples = {1: resampled(20, 25)}
    verdict = one(differences=by_seed(-5.0), resamples=resamples)
    assert verdict.word == "cannot tell"
    assert verdict.text == (
        "cannot tell: one seed shows no spread; beyond the noise of the test sentences (p < 0.001), which is not the "
        "seeds' noise"
    )
    assert (
        one(differences=by_seed(-0.01), resamples={1: resampled(24.99, 25)}).text.count("within the noise of the test")
        == 1
    )


def test_a_difference_significant_over_seeds_but_not_over_sentences_is_within_noise():
    shaky = {seed: resampled(24, 25, spread=4) for seed in (1, 2, 3)}
    verdict = one(differences=by_seed(-1.0, -1.01, -0.99), resamples=shaky)
    assert verdict.p_seeds < 0.05 < verdict.p_bootstrap
    assert verdict.word == "within noise"
    assert "steady over seeds, not over test sentences" in verdict.text
    assert "smallest difference" not in verdict.text
    firm = {seed: resampled(24, 25, spread=0.1) for seed in (1, 2, 3)}
    assert one(differences=by_seed(-1.0, -1.01, -0.99), resamples=firm).word == "worse"


def test_the_bootstrap_needs_resampled_scores_of_every_seed():
    assert one(differences=by_seed(-1.0, -2.0), resamples={1: resampled(24, 25)}).bootstrap is None


def test_rows_without_a_result_diverged_rows_and_equal_rows_have_other_words():
    assert (one().word, one().text) == ("", "no result yet")
    assert one(diverged=3).word == "diverged"
    assert one(differences=by_seed(0.0, 0.0)).word == "no difference"
    assert one(differences=by_seed(-5.0, -5.1), diverged=1).text.endswith("; 1 more seed diverged")


def test_holm_covers_the_rows_that_can_be_tested():
    differences = by_seed(-1.0, -1.2, -1.4)
    (alone,) = verdicts(BLEU, [PairedScores(differences)])
    many = verdicts(
        BLEU,
        [
            PairedScores(differences),
            *[PairedScores(by_seed(1.0, -1.0, 0.5))] * 8,
            PairedScores(),
            PairedScores(by_seed(1)),
        ],
    )
    assert many[0].p_seeds == pytest.approx(9 * alone.p_seeds)
    assert (alone.word, many[0].word) == ("worse", "within noise")
    assert many[0].minimum_detectable > alone.minimum_detectable
    assert many[-2].p_seeds is many[-1].p_seeds is None


def test_the_bootstrap_is_skipped_with_more_rows_than_its_p_values_can_resolve():
    row = PairedScores(by_seed(-5.0), {1: resampled(20, 25)})
    assert verdicts(BLEU, [row] * 49)[0].bootstrap is not None
    assert verdicts(BLEU, [row] * 50)[0].bootstrap is None
